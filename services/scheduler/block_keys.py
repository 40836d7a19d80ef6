"""Names KV blocks by everything their content depends on: equal in every process, different for every difference."""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

FORMAT_VERSION = 1

_TEXT, _NUMBER, _KEY, _TOKENS = b"T", b"N", b"K", b"I"

Digest = Callable[[bytes], bytes]


def sha256(data: bytes) -> bytes:
    """Hashes the encoded fields of one block."""
    return hashlib.sha256(data).digest()


@dataclass(frozen=True, slots=True)
class KeyScope:
    """What all blocks of a chain have in common, and what no block of another scope can be mistaken for."""

    tenant_namespace: str
    weights_digest: str
    tokenizer_digest: str
    adapter_digest: str
    compute_dtype: str
    kv_dtype: str
    layout: str
    rope: str
    block_tokens: int

    def encode(self) -> bytes:
        """Writes every field with its type and length, so that no two scopes read the same."""
        parts = [_field(_NUMBER, struct.pack("<Q", FORMAT_VERSION))]
        for item in fields(self):
            value = getattr(self, item.name)
            is_number = isinstance(value, int)
            parts.append(_field(_NUMBER, struct.pack("<Q", value)) if is_number else _field(_TEXT, value.encode()))
        return b"".join(parts)


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack("<Q", len(content)) + content


class KeyChain:
    """The keys of one token sequence's full blocks, each hashed once, when it is first asked for."""

    __slots__ = ("_digest", "_keys", "_prefix", "scope")

    def __init__(self, scope: KeyScope, digest: Digest = sha256) -> None:
        self.scope = scope
        self._prefix = scope.encode()
        self._digest = digest
        self._keys: list[bytes] = []

    def keys(self, tokens: Sequence[int], blocks: int) -> list[bytes]:
        """Returns the keys of at least this many leading blocks; tokens may only ever be appended to."""
        size = self.scope.block_tokens
        keys = self._keys
        for index in range(len(keys), blocks):
            parent = keys[-1] if keys else b""
            content = struct.pack(f"<{size}I", *tokens[index * size : (index + 1) * size])
            keys.append(self._digest(self._prefix + _field(_KEY, parent) + _field(_TOKENS, content)))
        return keys


def usable_blocks(length: int, block_tokens: int) -> int:
    """Returns how many cached blocks a sequence of this length may use: one token is always left to compute."""
    return max(length - 1, 0) // block_tokens
