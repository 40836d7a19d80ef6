"""The head of a second-level value: runners write and verify it, the kvstore rebuilds its index from it.

A value is head, payload, tag. The head's fixed part says how long everything is; after it come the value's own key, the
name of the KV dtype and of the layout, the block keys (up to here the index part), and the token ids. Little-endian.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

MAGIC = b"HEADRACE"
FORMAT_VERSION = 1
BLOCK_KEY_BYTES = 32
TAG_BYTES = 32

# Magic, format version; lengths of value key, dtype and layout; block_tokens, blocks; bytes of head, block and payload.
_FIXED = struct.Struct("<8sHHHHIIIQQ")
FIXED_BYTES = _FIXED.size
_TOKEN_BYTES = 4

MAX_BLOCKS = 65_536
MAX_HEAD_BYTES = 16 * 1024 * 1024


class MalformedValue(Exception):
    """Bytes that are not a value of this format; the message says what differs."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """What the index has to know of a value, and where the rest of it lies."""

    value_key: str
    dtype: str
    layout: str
    block_tokens: int
    block_bytes: int
    block_keys: tuple[bytes, ...]
    head_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Returns the length of the payload."""
        return len(self.block_keys) * self.block_bytes

    @property
    def value_bytes(self) -> int:
        """Returns the length of the whole value."""
        return self.head_bytes + self.payload_bytes + TAG_BYTES


@dataclass(frozen=True, slots=True)
class ValueHead:
    """A whole head: the index part and the tokens of its blocks."""

    index: IndexPart
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Lengths:
    """The fixed part's numbers, in their order."""

    value_key: int
    dtype: int
    layout: int
    block_tokens: int
    blocks: int
    head_bytes: int
    block_bytes: int

    @property
    def index_part(self) -> int:
        return FIXED_BYTES + self.value_key + self.dtype + self.layout + self.blocks * BLOCK_KEY_BYTES


def encode_head(
    value_key: str, dtype: str, layout: str, block_bytes: int, block_keys: Sequence[bytes], token_ids: Sequence[int]
) -> bytes:
    """Writes the head of a value; every block holds the same number of tokens."""
    block_tokens, rest = divmod(len(token_ids), max(len(block_keys), 1))
    assert block_tokens > 0, "a value holds at least one block"
    assert rest == 0, "a value holds whole blocks"
    assert all(len(key) == BLOCK_KEY_BYTES for key in block_keys), "block keys are SHA-256 digests"
    texts = [text.encode() for text in (value_key, dtype, layout)]
    tail = b"".join((*texts, *block_keys, struct.pack(f"<{len(token_ids)}I", *token_ids)))
    head_bytes = FIXED_BYTES + len(tail)
    sizes = (block_tokens, len(block_keys), head_bytes, block_bytes, block_bytes * len(block_keys))
    return _FIXED.pack(MAGIC, FORMAT_VERSION, *(len(text) for text in texts), *sizes) + tail


def index_part_bytes(start: bytes | memoryview) -> int:
    """Returns how many leading bytes of a value hold its index part; start holds at least the fixed part."""
    return _lengths(start).index_part


def decode_index_part(start: bytes | memoryview) -> IndexPart:
    """Reads the index part from a value's leading bytes; raises MalformedValue."""
    lengths = _lengths(start)
    if len(start) < lengths.index_part:
        raise MalformedValue(f"{len(start)} bytes, but the index part has {lengths.index_part}")
    position = FIXED_BYTES
    texts = []
    for size in (lengths.value_key, lengths.dtype, lengths.layout):
        try:
            texts.append(bytes(start[position : position + size]).decode())
        except UnicodeDecodeError as error:
            raise MalformedValue("a name in the head is not UTF-8") from error
        position += size
    keys = bytes(start[position : lengths.index_part])
    block_keys = tuple(keys[at : at + BLOCK_KEY_BYTES] for at in range(0, len(keys), BLOCK_KEY_BYTES))
    value_key, dtype, layout = texts
    return IndexPart(
        value_key, dtype, layout, lengths.block_tokens, lengths.block_bytes, block_keys, lengths.head_bytes
    )


def decode_head(value: bytes | memoryview) -> ValueHead:
    """Reads the whole head from a value, or from as much of it as holds the head; raises MalformedValue."""
    index = decode_index_part(value)
    if len(value) < index.head_bytes:
        raise MalformedValue(f"{len(value)} bytes, but the head has {index.head_bytes}")
    count = len(index.block_keys) * index.block_tokens
    token_ids = struct.unpack_from(f"<{count}I", value, index.head_bytes - count * _TOKEN_BYTES)
    return ValueHead(index, token_ids)


def _lengths(start: bytes | memoryview) -> _Lengths:
    if len(start) < FIXED_BYTES:
        raise MalformedValue(f"{len(start)} bytes, but a value has at least {FIXED_BYTES}")
    magic, version, *sizes, payload_bytes = _FIXED.unpack_from(start)
    if magic != MAGIC:
        raise MalformedValue("it does not begin as a Headrace value does")
    if version != FORMAT_VERSION:
        raise MalformedValue(f"format version {version}, this process knows {FORMAT_VERSION}")
    lengths = _Lengths(*sizes)
    blocks = lengths.blocks
    if not 1 <= blocks <= MAX_BLOCKS or lengths.block_tokens < 1 or lengths.block_bytes < 1:
        raise MalformedValue(f"{blocks} blocks of {lengths.block_tokens} tokens and {lengths.block_bytes} bytes")
    if payload_bytes != blocks * lengths.block_bytes:
        raise MalformedValue(f"payload of {payload_bytes} bytes for {blocks} blocks of {lengths.block_bytes}")
    expected_bytes = lengths.index_part + blocks * lengths.block_tokens * _TOKEN_BYTES
    if lengths.head_bytes > MAX_HEAD_BYTES or lengths.head_bytes != expected_bytes:
        raise MalformedValue(f"head of {lengths.head_bytes} bytes does not fit its contents")
    return lengths
