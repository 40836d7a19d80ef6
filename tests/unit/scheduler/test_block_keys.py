"""Block keys: the same everywhere, different for every difference."""

import dataclasses
import hashlib
import struct
import subprocess
import sys

from services.scheduler.block_keys import KeyChain, KeyScope, usable_blocks

SCOPE = KeyScope("tenant", "weights", "tokenizer", "", "float32", "float32", "layout", "rope", 4)


def first_key(scope: KeyScope, tokens: tuple[int, ...] = (1, 2, 3, 4)) -> bytes:
    return KeyChain(scope).keys(tokens, 1)[0]


def test_every_field_of_the_scope_changes_the_key() -> None:
    """KV-6."""
    keys = {first_key(SCOPE)}
    for field in dataclasses.fields(SCOPE):
        if field.name != "block_tokens":
            keys.add(first_key(dataclasses.replace(SCOPE, **{field.name: "other"})))
    keys.add(first_key(dataclasses.replace(SCOPE, block_tokens=2)))

    assert len(keys) == 1 + len(dataclasses.fields(SCOPE))


def test_text_cannot_move_between_fields() -> None:
    """KV-1: adapter "X" without tenant is not tenant "X" without adapter, and "ab"+"c" is not "a"+"bc"."""
    adapter = dataclasses.replace(SCOPE, tenant_namespace="", adapter_digest="X")
    tenant = dataclasses.replace(SCOPE, tenant_namespace="X", adapter_digest="")
    split = dataclasses.replace(SCOPE, weights_digest="ab", tokenizer_digest="c")
    other = dataclasses.replace(SCOPE, weights_digest="a", tokenizer_digest="bc")

    assert first_key(adapter) != first_key(tenant)
    assert first_key(split) != first_key(other)


def test_a_key_covers_all_tokens_before_it() -> None:
    one = KeyChain(SCOPE).keys((1, 2, 3, 4, 9, 9, 9, 9), 2)
    other = KeyChain(SCOPE).keys((1, 2, 3, 5, 9, 9, 9, 9), 2)

    assert one[1] != other[1]


def test_a_chain_grows_without_hashing_a_block_twice() -> None:
    hashed = []

    def digest(data: bytes) -> bytes:
        hashed.append(data)
        return hashlib.sha256(data).digest()

    chain, tokens = KeyChain(SCOPE, digest), [1, 2, 3, 4]
    chain.keys(tokens, 1)
    tokens += [5, 6, 7, 8]

    assert chain.keys(tokens, 2) == KeyChain(SCOPE).keys(tokens, 2)
    assert len(hashed) == 2


def test_the_encoding_is_the_documented_one() -> None:
    def field(tag: bytes, content: bytes) -> bytes:
        return tag + struct.pack("<Q", len(content)) + content

    texts = ("tenant", "weights", "tokenizer", "", "float32", "float32", "layout", "rope")
    expected = field(b"N", struct.pack("<Q", 1)) + b"".join(field(b"T", text.encode()) for text in texts)
    expected += field(b"N", struct.pack("<Q", 4)) + field(b"K", b"") + field(b"I", struct.pack("<4I", 1, 2, 3, 4))

    assert first_key(SCOPE) == hashlib.sha256(expected).digest()


def test_another_process_computes_the_same_key() -> None:
    code = (
        "from services.scheduler.block_keys import KeyChain, KeyScope;"
        f"print(KeyChain({SCOPE!r}).keys((1, 2, 3, 4), 1)[0].hex())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert bytes.fromhex(shown.strip()) == first_key(SCOPE)


def test_at_least_one_token_is_left_to_compute() -> None:
    """KV-4."""
    assert [usable_blocks(length, 4) * 4 for length in (1, 4, 12, 13, 14, 16, 17)] == [0, 0, 8, 12, 12, 12, 16]
    assert usable_blocks(0, 4) == 0
