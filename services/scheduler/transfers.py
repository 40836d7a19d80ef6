"""Blocks on their way between a runner's pool and the second-level cache: pinned until the runner says they arrived."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.block_pool import BlockPool
    from services.scheduler.residency import Residency


class TransferOutcome(Enum):
    """How a transfer ended."""

    DONE = auto()
    MISS = auto()
    CORRUPT = auto()
    TIMEOUT = auto()
    UNAVAILABLE = auto()


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """One block of a value and its place in the pool."""

    index: int
    block_id: int
    key: bytes


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A value in the second-level cache and what proves it."""

    value_key: str
    integrity_key: bytes


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Fetches blocks of one value for one request."""

    transfer_id: int
    value: ValueRef
    blocks: tuple[PlacedBlock, ...]
    token_ids: tuple[int, ...]
    residency: Residency
    first_block: int
    """Position in the request's chain of the first of the blocks."""
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class PublishOrder:
    """Writes blocks as one value, under a lease of the kvstore."""

    transfer_id: int
    lease_id: int
    value: ValueRef
    blocks: tuple[PlacedBlock, ...]
    token_ids: tuple[int, ...]
    expiry_seconds: int
    traceparent: str


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The runner's word on one transfer."""

    transfer_id: int
    outcome: TransferOutcome
    payload_bytes: int
    message: str


class Transfers:
    """The orders of one runner: not yet planned, then under way; every one holds references to its blocks."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._next_id = 1
        self._loads: list[LoadOrder] = []
        self._publishes: list[PublishOrder] = []
        self._under_way: dict[int, LoadOrder | PublishOrder] = {}

    def __len__(self) -> int:
        return len(self._loads) + len(self._publishes) + len(self._under_way)

    def next_id(self) -> int:
        """Returns a fresh number for an order."""
        number, self._next_id = self._next_id, self._next_id + 1
        return number

    def add(self, order: LoadOrder | PublishOrder) -> None:
        """Pins an order's blocks; the next plan will carry it."""
        self._pool.take(block.block_id for block in order.blocks)
        if isinstance(order, LoadOrder):
            self._loads.append(order)
        else:
            self._publishes.append(order)

    def start_all(self) -> tuple[list[LoadOrder], list[PublishOrder]]:
        """Hands the waiting orders over to a plan; loads that nobody waits for any more are dropped."""
        loads = [order for order in self._loads if not order.residency.is_released]
        for order in self._loads:
            if order.residency.is_released:
                self._unpin(order)
        publishes = self._publishes
        self._loads, self._publishes = [], []
        self._under_way.update((order.transfer_id, order) for order in loads)
        self._under_way.update((order.transfer_id, order) for order in publishes)
        return loads, publishes

    def end(self, transfer_id: int) -> LoadOrder | PublishOrder | None:
        """Unpins the blocks of a transfer that the runner reports as ended."""
        order = self._under_way.pop(transfer_id, None)
        if order is not None:
            self._unpin(order)
        return order

    def is_loading(self, key: bytes) -> bool:
        """Tells whether a block with this key is on its way into the pool for a request that waits for it."""
        orders = (*self._loads, *self._under_way.values())
        return any(
            block.key == key
            for order in orders
            if isinstance(order, LoadOrder) and not order.residency.is_released
            for block in order.blocks
        )

    def open_publishes(self) -> list[PublishOrder]:
        """Lists the publishes that have not ended."""
        return [*self._publishes, *(item for item in self._under_way.values() if isinstance(item, PublishOrder))]

    def _unpin(self, order: LoadOrder | PublishOrder) -> None:
        self._pool.release([block.block_id for block in order.blocks])
