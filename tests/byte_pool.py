"""A block pool of plain bytes: what the transfers need of the runner's pool, without torch."""

import hashlib
from typing import Any

from services.runner.l2.orders import LayoutIdentity, LoadOrder, PublishOrder, StoredBlock

IDENTITY = LayoutIdentity(dtype="float32", layout="LKTHD-2-4-2-8", block_tokens=4, block_bytes=4096)
INTEGRITY_KEY = b"k" * 32


class BytePool:
    """Blocks of bytes, each first filled from its number."""

    def __init__(self, blocks: int = 32, block_bytes: int = IDENTITY.block_bytes) -> None:
        self.block_bytes = block_bytes
        self.blocks = [bytearray(_pattern(number, block_bytes)) for number in range(blocks)]
        self.written: list[int] = []

    def read_block(self, block_id: int, out: memoryview) -> None:
        """Copies a block into out."""
        out[:] = self.blocks[block_id]

    def write_block(self, block_id: int, source: memoryview) -> None:
        """Copies source into a block."""
        self.written.append(block_id)
        self.blocks[block_id][:] = source


def _pattern(number: int, size: int) -> bytes:
    return hashlib.shake_128(number.to_bytes(4)).digest(size)


def block_key(number: int) -> bytes:
    """Returns a block key that stands for a number."""
    return hashlib.sha256(b"block %d" % number).digest()


def tokens_of(number: int, block_tokens: int = IDENTITY.block_tokens) -> tuple[int, ...]:
    """Returns the tokens of the block with this number."""
    return tuple(range(number * 1000, number * 1000 + block_tokens))


def publish_order(numbers: range, value_key: str = "headrace:1:n:v", **changes: Any) -> PublishOrder:
    """Orders that the blocks with these numbers, which lie under the same ids, are written as one value."""
    blocks = tuple(StoredBlock(index, number, block_key(number)) for index, number in enumerate(numbers))
    tokens = tuple(token for number in numbers for token in tokens_of(number))
    settings: dict[str, Any] = {"integrity_key": INTEGRITY_KEY, "expiry_seconds": 60, "transfer_id": 1, **changes}
    return PublishOrder(value_key=value_key, blocks=blocks, token_ids=tokens, **settings)


def load_order(
    numbers: range, into: int, first_index: int = 0, value_key: str = "headrace:1:n:v", **changes: Any
) -> LoadOrder:
    """Orders that blocks with these numbers, which begin at first_index of the value, go to ids from into on."""
    blocks = tuple(
        StoredBlock(first_index + place, into + place, block_key(number)) for place, number in enumerate(numbers)
    )
    tokens = tuple(token for number in numbers for token in tokens_of(number))
    settings: dict[str, Any] = {"integrity_key": INTEGRITY_KEY, "timeout_seconds": 5.0, "transfer_id": 2, **changes}
    return LoadOrder(value_key=value_key, blocks=blocks, token_ids=tokens, **settings)
