"""Stored values: what was written comes back, and nothing else passes for it."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from byte_pool import IDENTITY, INTEGRITY_KEY, BytePool, block_key, load_order, publish_order, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.value_header import (
    FIXED_BYTES,
    TAG_BYTES,
    MalformedValue,
    decode_head,
    decode_index_part,
    encode_head,
    index_part_bytes,
)
from services.runner.l2.orders import LayoutIdentity, LoadOrder, StoredBlock
from services.runner.l2.value_format import CorruptValue, head_of, tag_of, verify_value

SMALL = replace(IDENTITY, block_bytes=64)
KEY = "headrace:1:n:v"


def stored(numbers: range = range(4), identity: LayoutIdentity = SMALL, **changes: Any) -> bytes:
    """Returns the bytes that publishing these blocks writes."""
    order = publish_order(numbers, **changes)
    pool = BytePool(block_bytes=identity.block_bytes)
    payload = b"".join(bytes(pool.blocks[number]) for number in numbers)
    head = head_of(order, identity)
    return head + payload + tag_of(order.integrity_key, head, payload)


def signed(head_and_payload: bytes, key: bytes = INTEGRITY_KEY) -> bytes:
    """Signs any bytes with the right key: what only a bug of ours could write."""
    return head_and_payload + tag_of(key, head_and_payload)


def is_accepted(value: bytes | bytearray, order: LoadOrder, identity: LayoutIdentity = SMALL) -> bool:
    try:
        verify_value(memoryview(value), order, identity)
    except CorruptValue:
        return False
    return True


WHOLE = load_order(range(4), into=0)


def test_any_blocks_of_a_value_come_back_as_they_were() -> None:
    value = memoryview(stored())
    for first in range(4):
        order = load_order(range(first, 4), into=0, first_index=first)
        verified = verify_value(value, order, SMALL)
        for number in range(first, 4):
            assert verified.block(number) == BytePool(block_bytes=64).blocks[number]


def test_no_single_changed_byte_is_accepted() -> None:
    """L2-2: head, payload and tag are covered to the last byte."""
    value = bytearray(stored())
    for place in range(len(value)):
        for flip in (0x01, 0x80, 0xFF):
            value[place] ^= flip
            assert not is_accepted(value, WHOLE), f"byte {place} changed by {flip}"
            value[place] ^= flip
    assert is_accepted(value, WHOLE)


def test_no_truncated_or_extended_value_is_accepted() -> None:
    """L2-2: a partly evicted or overwritten value is never half used."""
    value = stored()
    for length in range(len(value)):
        assert not is_accepted(value[:length], WHOLE)
    for extra in (b"\0", b"x" * 64, value):
        assert not is_accepted(value + extra, WHOLE)
        assert not is_accepted(extra + value, WHOLE)


def test_random_damage_is_never_accepted() -> None:
    chance = random.Random(7)
    whole = stored()
    for _ in range(3000):
        value = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            first = chance.randrange(len(value))
            value[first : first + chance.randint(0, 40)] = chance.randbytes(chance.randint(0, 40))
        assert bytes(value) == whole or not is_accepted(value, WHOLE)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(stored(value_key="headrace:1:n:other"), id="another value's key"),
        pytest.param(stored(integrity_key=b"other tenant" * 3), id="another tenant"),
        pytest.param(stored(identity=replace(SMALL, dtype="bfloat16")), id="another dtype"),
        pytest.param(stored(identity=replace(SMALL, layout="LKHTD-2-2-4-8")), id="another layout"),
        pytest.param(stored(identity=replace(SMALL, block_bytes=128)), id="another block size"),
        pytest.param(stored(range(1, 5)), id="other blocks"),
        pytest.param(stored(range(2)), id="fewer blocks"),
    ],
)
def test_a_value_of_another_identity_is_corrupt(value: bytes) -> None:
    """KV-6 and the tenants' wall: valid in itself is not enough."""
    assert not is_accepted(value, WHOLE)


def test_a_colliding_block_key_is_caught_by_its_tokens() -> None:
    """KV-3: the key is right, the tokens are another prompt's."""
    order = replace(WHOLE, token_ids=(*tokens_of(0), *tokens_of(1), *tokens_of(2), 9, 9, 9, 9))
    assert not is_accepted(stored(), order)


def test_other_tokens_per_block_are_corrupt() -> None:
    head = encode_head(KEY, SMALL.dtype, SMALL.layout, 64, [block_key(n) for n in range(4)], range(32))
    assert not is_accepted(signed(head + bytes(4 * 64)), WHOLE)


def test_a_block_beyond_the_value_is_corrupt() -> None:
    order = replace(WHOLE, blocks=(StoredBlock(4, 0, block_key(4)),), token_ids=tokens_of(4))
    assert not is_accepted(stored(), order)


def well_signed_nonsense() -> Iterator[bytes]:
    """Yields heads with every single field wrong, under a right tag: lengths must not be believed."""
    whole = stored()[:-TAG_BYTES]
    for place in range(FIXED_BYTES):
        for byte in (0x00, 0x01, 0x7F, 0xFF):
            if whole[place] != byte:
                yield whole[:place] + bytes([byte]) + whole[place + 1 :]


def test_a_head_that_lies_about_its_lengths_is_corrupt_even_under_a_right_tag() -> None:
    for nonsense in well_signed_nonsense():
        assert not is_accepted(signed(nonsense), WHOLE)


def test_a_length_other_than_the_head_says_is_corrupt_even_under_a_right_tag() -> None:
    whole = stored()[:-TAG_BYTES]
    for value in (whole[:-64], whole[:-1], whole + b"x", whole + bytes(64)):
        assert not is_accepted(signed(value), WHOLE)
    assert is_accepted(signed(whole), WHOLE)


def test_another_format_version_is_corrupt_and_named() -> None:
    value = bytearray(stored()[:-TAG_BYTES])
    value[8:10] = (2).to_bytes(2, "little")
    with pytest.raises(CorruptValue, match="format version 2"):
        verify_value(memoryview(signed(bytes(value))), WHOLE, SMALL)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_are_malformed_and_nothing_worse(data: bytes) -> None:
    for reader in (decode_head, decode_index_part, index_part_bytes):
        with pytest.raises(MalformedValue):
            reader(data)


@given(
    st.text(min_size=1, max_size=40),
    st.text(max_size=20),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(1, 2**40),
)
@settings(max_examples=200, deadline=None)
def test_a_head_says_what_was_written(key: str, layout: str, tokens: int, blocks: int, block_bytes: int) -> None:
    keys = [block_key(number) for number in range(blocks)]
    token_ids = [(number * 7919) % 2**32 for number in range(blocks * tokens)]
    head = encode_head(key, "float16", layout, block_bytes, keys, token_ids)
    read = decode_head(head)
    assert read.token_ids == tuple(token_ids)
    assert decode_index_part(head[: index_part_bytes(head)]) == read.index
    assert (read.index.value_key, read.index.layout, read.index.block_keys) == (key, layout, tuple(keys))
    assert read.index.value_bytes == len(head) + blocks * block_bytes + TAG_BYTES
