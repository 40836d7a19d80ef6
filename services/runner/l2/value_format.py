"""Signs and verifies the values of the second-level cache: what does not verify never reaches the pool.

A value is head, payload (the blocks in order) and an HMAC-SHA256 tag over both, under the integrity key of the tenant's
namespace. So a value of another key, tenant, dtype, layout or version, or with any byte changed, is corrupt.
"""

import hmac
from dataclasses import dataclass

from services.common.value_header import (
    FIXED_BYTES,
    TAG_BYTES,
    MalformedValue,
    ValueHead,
    decode_head,
    encode_head,
)
from services.runner.l2.orders import LayoutIdentity, LoadOrder, PublishOrder

Buffer = bytes | bytearray | memoryview


class CorruptValue(Exception):
    """A stored value is not what its reader was told; the message says what differs."""


@dataclass(frozen=True, slots=True)
class VerifiedValue:
    """A value that verified, whose payload may be copied into the pool."""

    payload: memoryview
    block_bytes: int

    def block(self, index: int) -> memoryview:
        """Returns the bytes of the block at this position of the value."""
        return self.payload[index * self.block_bytes : (index + 1) * self.block_bytes]


def head_of(order: PublishOrder, identity: LayoutIdentity) -> bytes:
    """Writes the head of the value that an order publishes."""
    assert len(order.token_ids) == len(order.blocks) * identity.block_tokens, "a value holds whole blocks"
    assert [block.index for block in order.blocks] == list(range(len(order.blocks))), "indexes count from 0"
    keys = [block.block_key for block in order.blocks]
    return encode_head(order.value_key, identity.dtype, identity.layout, identity.block_bytes, keys, order.token_ids)


def tag_of(integrity_key: bytes, *parts: Buffer) -> bytes:
    """Computes the tag over the concatenation of the parts, without copying them."""
    digest = hmac.new(integrity_key, digestmod="sha256")
    for part in parts:
        digest.update(part)
    return digest.digest()


def verify_value(value: memoryview, order: LoadOrder, identity: LayoutIdentity) -> VerifiedValue:
    """Returns the payload if every byte is authentic and the head says what the order expects; raises CorruptValue."""
    if len(value) <= FIXED_BYTES + TAG_BYTES:
        raise CorruptValue(f"{len(value)} bytes are less than any value has")
    signed, tag = value[:-TAG_BYTES], value[-TAG_BYTES:]
    if not hmac.compare_digest(tag_of(order.integrity_key, signed), bytes(tag)):
        raise CorruptValue("its tag does not verify")
    try:
        head = decode_head(signed)
    except MalformedValue as error:
        raise CorruptValue(str(error)) from error
    if head.index.value_bytes != len(value):
        raise CorruptValue(f"{len(value)} bytes, but its head says {head.index.value_bytes}")
    _expect_identity(head, order, identity)
    _expect_blocks(head, order, identity.block_tokens)
    return VerifiedValue(signed[head.index.head_bytes :], identity.block_bytes)


def _expect_identity(head: ValueHead, order: LoadOrder, identity: LayoutIdentity) -> None:
    found = head.index
    expectations = (
        ("value key", found.value_key, order.value_key),
        ("KV dtype", found.dtype, identity.dtype),
        ("layout", found.layout, identity.layout),
        ("tokens per block", found.block_tokens, identity.block_tokens),
        ("bytes per block", found.block_bytes, identity.block_bytes),
    )
    for name, is_, expected in expectations:
        if is_ != expected:
            raise CorruptValue(f"{name} {is_!r} instead of {expected!r}")


def _expect_blocks(head: ValueHead, order: LoadOrder, block_tokens: int) -> None:
    """Compares keys, and the tokens themselves: a key's collision must not pass for a hit."""
    for position, block in enumerate(order.blocks):
        if block.index >= len(head.index.block_keys):
            raise CorruptValue(f"block {block.index} of {len(head.index.block_keys)}")
        if head.index.block_keys[block.index] != block.block_key:
            raise CorruptValue(f"block {block.index} has another key")
        stored = head.token_ids[block.index * block_tokens : (block.index + 1) * block_tokens]
        if stored != order.token_ids[position * block_tokens : (position + 1) * block_tokens]:
            raise CorruptValue(f"block {block.index} is of other tokens")
