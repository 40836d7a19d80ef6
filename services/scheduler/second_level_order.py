"""Which blocks to fetch from the second-level cache, and which ones to offer to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.scheduler.block_keys import usable_blocks
from services.scheduler.request import Request
from services.scheduler.residency import PendingLoad, Residency
from services.scheduler.runner_session import Offer, RunnerSession
from services.scheduler.transfers import (
    LoadOrder,
    PlacedBlock,
    TransferOutcome,
    TransferReport,
    ValueRef,
)

# Below this, computing is usually faster than loading.
SLOW_BYTES_PER_SECOND = 100e6
# The runner keeps to the time limit by itself; this much later it is not believed to do so any more.
GRACE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class PublishRange:
    """Consecutive computed blocks of a chain; they are pinned until the offer is settled."""

    tenant_namespace: str
    keys: tuple[bytes, ...]
    block_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    traceparent: str

    def part(self, first: int, end: int) -> PublishRange:
        """Returns a part of it, by positions of blocks."""
        size = len(self.token_ids) // len(self.keys)
        return replace(
            self,
            keys=self.keys[first:end],
            block_ids=self.block_ids[first:end],
            token_ids=self.token_ids[first * size : end * size],
        )


def loadable_blocks(session: RunnerSession, request: Request) -> int:
    """Returns how many leading blocks the second-level cache could give the request on this runner."""
    stored = request.stored
    if stored is None or not session.identity.has_l2 or not request.spec.cache_policy.is_reading:
        return 0
    if stored.scope != session.key_chain(request).scope:
        return 0
    return min(stored.blocks, usable_blocks(len(request.tokens), session.pool.block_tokens))


def is_fetched_for_another(session: RunnerSession, request: Request, offer: Offer) -> bool:
    """Tells whether the first block to load is on its way for another request: waiting for it saves a transfer."""
    hit = len(offer.matched)
    if loadable_blocks(session, request) <= hit:
        return False
    return session.transfers.is_loading(session.key_chain(request).keys(request.tokens, hit + 1)[hit])


def order_loads(session: RunnerSession, residency: Residency, end_block: int, seconds: float) -> None:
    """Orders the stored blocks after those that the runner holds itself, up to end_block."""
    request = residency.request
    stored = request.stored
    assert stored is not None
    size = session.pool.block_tokens
    keys = session.key_chain(request).keys(request.tokens, end_block)
    first_block = residency.planned // size
    residency.load = PendingLoad(first_block, end_block)
    residency.loaded_from = residency.planned
    position = 0
    for run in stored.runs:
        start, end = max(position, first_block), min(position + run.blocks, end_block)
        if start < end:
            placed = tuple(
                PlacedBlock(run.first_index + block - position, residency.block_ids[block], keys[block])
                for block in range(start, end)
            )
            session.transfers.add(
                LoadOrder(
                    transfer_id=session.transfers.next_id(),
                    value=ValueRef(run.value_key, stored.integrity_key),
                    blocks=placed,
                    token_ids=tuple(request.tokens[start * size : end * size]),
                    residency=residency,
                    first_block=start,
                    timeout_seconds=seconds + len(placed) * session.identity.kv.block_bytes / SLOW_BYTES_PER_SECOND,
                )
            )
            residency.load.outstanding += 1
        position += run.blocks


def note_loads_started(orders: list[LoadOrder], now: float) -> None:
    """Starts the clock of loads whose plan the runner has answered."""
    for order in orders:
        load = order.residency.load
        if load is not None and not order.residency.is_released:
            load.give_up_at = max(load.give_up_at or now, now + order.timeout_seconds + GRACE_SECONDS)


def note_load_ended(session: RunnerSession, order: LoadOrder, report: TransferReport) -> bool:
    """Counts a load's blocks as arrived or not; tells whether the request can run now."""
    residency = order.residency
    load = residency.load
    if residency.is_released or load is None:
        return False
    load.outstanding -= 1
    if report.outcome is TransferOutcome.DONE:
        load.arrived.update(range(order.first_block, order.first_block + len(order.blocks)))
    else:
        # A second try would most likely fail too.
        residency.request.stored = None
    if load.outstanding > 0:
        return False
    residency.load = None
    arrived_end = load.arrived_end()
    residency.planned = residency.computed = arrived_end * session.pool.block_tokens
    residency.offered = arrived_end
    session.register_computed(residency)
    return True


def take_publishable(session: RunnerSession, residency: Residency) -> PublishRange | None:
    """Pins and returns the computed full blocks, from the chain's first one: what follows a gap is of no use."""
    request = residency.request
    if not session.identity.has_l2 or not request.spec.cache_policy.is_leaving:
        return None
    end = residency.registered
    if residency.offered >= end:
        return None
    residency.offered = end
    size = session.pool.block_tokens
    block_ids = tuple(residency.block_ids[:end])
    session.pool.take(block_ids)
    return PublishRange(
        tenant_namespace=request.spec.tenant_namespace,
        keys=tuple(session.key_chain(request).keys(request.tokens, end)[:end]),
        block_ids=block_ids,
        token_ids=tuple(request.tokens[: end * size]),
        traceparent=request.spec.traceparent,
    )
