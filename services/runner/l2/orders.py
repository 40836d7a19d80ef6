"""What the transfers of the second-level cache are told, and what they report: plain values, no protobuf."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """Places one block of a value."""

    index: int
    """Position within the value, counted in blocks."""
    block_id: int
    """Where it belongs in the runner's pool."""
    block_key: bytes
    """The 32 bytes that the value must claim for it."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Fetch blocks of one value into the pool: all of them or none."""

    transfer_id: int
    value_key: str
    integrity_key: bytes
    blocks: tuple[StoredBlock, ...]
    token_ids: tuple[int, ...]
    """The tokens of those blocks, in order."""
    timeout_seconds: float
    traceparent: str = ""
    request_id: str = ""
    """Of the request that waits for the blocks."""


@dataclass(frozen=True, slots=True)
class PublishOrder:
    """Write blocks of the pool as one immutable value; their indexes count from 0 without a gap."""

    transfer_id: int
    value_key: str
    integrity_key: bytes
    blocks: tuple[StoredBlock, ...]
    token_ids: tuple[int, ...]
    expiry_seconds: int
    traceparent: str = ""


class Outcome(enum.Enum):
    """How a transfer ended; the names are those of the proto's TransferOutcome."""

    DONE = "DONE"
    MISS = "MISS"
    CORRUPT = "CORRUPT"
    TIMEOUT = "TIMEOUT"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The end of one transfer: its blocks are not touched any more."""

    transfer_id: int
    outcome: Outcome
    payload_bytes: int
    duration_nanoseconds: int
    message: str = ""


Done = Callable[[TransferReport], None]
"""Called once for each order: from a transfer's thread, or from submit or close for an order that never begins."""


@dataclass(frozen=True, slots=True)
class LayoutIdentity:
    """What a block's bytes mean; written into every value and compared when it is read."""

    dtype: str
    layout: str
    block_tokens: int
    block_bytes: int


class BlockPool(Protocol):
    """The runner's pool of KV blocks as the transfers see it; callable from their threads."""

    @property
    def block_bytes(self) -> int:
        """Returns the bytes of one block over all layers."""

    def read_block(self, block_id: int, out: memoryview) -> None:
        """Copies a block into out."""

    def write_block(self, block_id: int, source: memoryview) -> None:
        """Copies source into a block."""


@dataclass(frozen=True, slots=True)
class L2Config:
    """Where Redis is, and how patient the transfers are."""

    redis_url: str
    threads: int = 2
    """Each has a socket and a staging buffer of its own."""
    connect_timeout_seconds: float = 0.2
    publish_timeout_seconds: float = 2.0
    """For one value, from its turn to Redis's answer; a load brings its own limit, counted from its submission."""
    publish_wait_seconds: float = 5.0
    """A publish that has waited longer for its turn is given up: its blocks are pinned, its lease runs out."""
    max_value_bytes: int = 64 * 1024 * 1024
    """A stored value that claims to be larger is corrupt."""
    max_waiting_publishes: int = 256
    """Beyond this a publish is given up at once: it only costs a later hit."""
    breaker_failures: int = 3
    """Failures in a row that open the breaker."""
    breaker_open_seconds: float = 1.0
    """How long nothing is tried after the first opening; doubles up to breaker_open_max_seconds."""
    breaker_open_max_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class L2Counters:
    """What the transfers have done since the start, and their state now; the runner exports it."""

    loads: dict[str, int]
    """By outcome."""
    publishes: dict[str, int]
    """By outcome."""
    loaded_bytes: int
    published_bytes: int
    load_seconds: float
    publish_seconds: float
    corrupt_values: int
    is_breaker_open: bool
    breaker_openings: int
    is_store_paused: bool
    """Redis refuses to store (it is full, or a replica); loads go on."""
    waiting: int
