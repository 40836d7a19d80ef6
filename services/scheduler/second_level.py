"""The kvstore's client: asks what is stored, offers what was computed. Its failures only ever cost a cache hit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from headrace.v1 import kvstore_pb2, kvstore_pb2_grpc
from services.common.breaker import Breaker, BreakerSettings, Permit
from services.common.tracing import client_span, context_from_traceparent
from services.scheduler.block_keys import usable_blocks
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.placement import is_match
from services.scheduler.request import Phase, Request
from services.scheduler.runner_session import RunnerSession
from services.scheduler.second_level_order import PublishRange
from services.scheduler.stage_clock import Stage
from services.scheduler.stored_keys import StoredKeys
from services.scheduler.stored_prefix import StoredPrefix, StoredRun
from services.scheduler.transfers import PlacedBlock, PublishOrder, TransferOutcome, TransferReport, ValueRef
from services.scheduler.waiting_queue import WaitingQueue

log = structlog.get_logger()

T = TypeVar("T")

SERVICE = "headrace.v1.KvStoreService"
BOOKKEEPING_SECONDS = 2.0
MOST_PINNED_SHARE = 0.25
MOST_LOOKUPS = 64


class NoSecondLevel:
    """Stands where no kvstore is configured: nothing is found, nothing is offered."""

    async def look_up(self, request: Request, sessions: Iterable[RunnerSession]) -> None:
        """Finds nothing."""

    async def look_up_waiting(self, queue: WaitingQueue, session: RunnerSession) -> None:
        """Finds nothing."""

    def offer(self, session: RunnerSession, offered: PublishRange) -> None:
        """Lets go of the blocks."""
        session.pool.release(offered.block_ids)

    def settle(self, order: PublishOrder, report: TransferReport) -> None:
        """Never called: nothing was ordered."""

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remembers nothing anyway."""

    def abandon(self, session: RunnerSession) -> None:
        """Has nothing to give back."""

    async def close(self) -> None:
        """Has nothing to close."""


@dataclass(frozen=True, slots=True)
class Question:
    """One call to the kvstore."""

    operation: str
    message: Message
    timeout_seconds: float
    traceparent: str
    request_id: str = ""
    """Of the request that waits for the answer."""


@dataclass(frozen=True, slots=True)
class KvStoreAccess:
    """How to reach the kvstore."""

    channel: grpc.aio.Channel
    metadata: dict[str, str]
    lookup_seconds: float


class SecondLevel:
    """Talks to the kvstore within small time limits, and not at all while it does not answer."""

    def __init__(self, access: KvStoreAccess, metrics: SchedulerMetrics) -> None:
        self._access = access
        self._stub: kvstore_pb2_grpc.KvStoreServiceAsyncStub = kvstore_pb2_grpc.KvStoreServiceStub(access.channel)
        self._metrics = metrics
        self._breaker = Breaker(BreakerSettings())
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stored = StoredKeys(time.monotonic)
        self._leasing: set[bytes] = set()

    async def look_up(self, request: Request, sessions: Iterable[RunnerSession]) -> None:
        """Notes on the request what is stored of its prompt beyond what its runner holds itself."""
        spec = request.spec
        if not spec.cache_policy.is_reading:
            return
        session = next((item for item in sessions if item.identity.has_l2 and is_match(spec, item.identity)), None)
        if session is None:
            return
        usable = usable_blocks(len(request.tokens), session.pool.block_tokens)
        if len(session.match(request)) >= usable:
            return
        keys = session.key_chain(request).keys(request.tokens, usable)[:usable]
        asked = kvstore_pb2.LookupRequest(tenant_namespace=spec.tenant_namespace, block_keys=keys)
        permit = self._breaker.permit()
        if permit is None:
            self._probe(asked)
            return
        request.clock.enter(Stage.KV_LOOKUP, time.monotonic())
        request.is_looked_up = True
        question = Question("Lookup", asked, self._access.lookup_seconds, spec.traceparent, spec.request_id)
        answer = await self._ask(self._stub.Lookup, question, permit)
        if answer is None:
            return
        if not answer.degraded_reason:
            found = sum(run.blocks for run in answer.runs)
            self._stored.note(keys[:found])
            # Redis may have lost what was stored once: it is offered again.
            self._stored.drop(keys[found:])
        if answer.runs:
            runs = tuple(StoredRun(run.value_key, run.first_index, run.blocks) for run in answer.runs)
            request.stored = StoredPrefix(session.key_chain(request).scope, runs, answer.integrity_key)

    async def look_up_waiting(self, queue: WaitingQueue, session: RunnerSession) -> None:
        """Looks up for a new runner what waits for it: nobody could while there was none, and a lost one's is gone."""
        waiting = [request for request in queue if is_match(request.spec, session.identity)][:MOST_LOOKUPS]
        await asyncio.gather(*(self.look_up(request, [session]) for request in waiting))
        for request in waiting:
            if request.phase in (Phase.QUEUED, Phase.PREEMPTED):
                request.clock.enter(Stage.QUEUE, time.monotonic())

    def _probe(self, asked: kvstore_pb2.LookupRequest) -> None:
        """Finds out, beside the request and not for it, whether the kvstore answers again."""
        permit = self._breaker.probe()
        if permit is not None:
            question = Question("Lookup", asked, self._access.lookup_seconds, traceparent="")
            self._spawn(self._ask(self._stub.Lookup, question, permit))

    def offer(self, session: RunnerSession, offered: PublishRange) -> None:
        """Takes over a chain's pinned blocks: leases the right to store those after the ones that are stored."""
        total = len(offered.keys)
        under_way = [block.key for order in session.transfers.open_publishes() for block in order.blocks]
        pinned = len(under_way)
        taken = self._leasing.union(under_way)
        first = next((at for at, key in enumerate(offered.keys) if key not in self._stored and key not in taken), total)
        end = min(total, first + int(session.pool.total * MOST_PINNED_SHARE) - pinned)
        permit = self._breaker.permit() if first < end else None
        if permit is None:
            session.pool.release(offered.block_ids)
            return
        session.pool.release(offered.block_ids[:first] + offered.block_ids[end:])
        self._spawn(self._lease(session, offered.part(first, end), permit))

    async def _lease(self, session: RunnerSession, offered: PublishRange, permit: Permit) -> None:
        asked = kvstore_pb2.LeaseRequest(
            tenant_namespace=offered.tenant_namespace,
            block_keys=offered.keys,
            block_bytes=session.identity.kv.block_bytes,
            runner_id=session.identity.runner_id,
        )
        self._leasing.update(offered.keys)
        try:
            question = Question("Lease", asked, BOOKKEEPING_SECONDS, offered.traceparent)
            answer = await self._ask(self._stub.Lease, question, permit)
            if answer is not None:
                self._order_publishes(session, offered, answer)
        finally:
            self._leasing.difference_update(offered.keys)
            session.pool.release(offered.block_ids)
            session.news.set()

    def _order_publishes(
        self, session: RunnerSession, offered: PublishRange, answer: kvstore_pb2.LeaseResponse
    ) -> None:
        granted: set[int] = set()
        for grant in answer.grants:
            granted.update(range(grant.first_block, grant.first_block + grant.blocks))
            if session.is_closed:
                self._spawn(self._commit(grant.lease_id, None, offered.traceparent))
            else:
                session.transfers.add(_publish_order(session, offered, grant, answer.integrity_key))
        if not answer.degraded_reason:
            # What was not granted is stored already, or another runner is storing it.
            self._stored.note(key for position, key in enumerate(offered.keys) if position not in granted)

    def settle(self, order: PublishOrder, report: TransferReport) -> None:
        """Makes a written value visible, or gives its lease back."""
        is_stored = report.outcome is TransferOutcome.DONE
        if is_stored:
            self._stored.note(block.key for block in order.blocks)
        self._spawn(self._commit(order.lease_id, report.payload_bytes if is_stored else None, order.traceparent))

    def abandon(self, session: RunnerSession) -> None:
        """Gives back the leases of a runner that is gone."""
        for order in session.transfers.open_publishes():
            self._spawn(self._commit(order.lease_id, None, order.traceparent))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Drops keys that turned out not to be stored, so that they are offered again."""
        self._stored.drop(keys)

    async def close(self) -> None:
        """Ends open calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._access.channel.close()

    async def _commit(self, lease_id: int, stored_bytes: int | None, traceparent: str) -> None:
        permit = self._breaker.permit()
        if permit is None:
            return  # the lease ends by itself
        asked = kvstore_pb2.CommitRequest(
            lease_id=lease_id, is_stored=stored_bytes is not None, stored_bytes=stored_bytes or 0
        )
        question = Question("Commit", asked, BOOKKEEPING_SECONDS, traceparent)
        await self._ask(self._stub.Commit, question, permit)

    async def _ask(self, method: Callable[..., Awaitable[T]], question: Question, permit: Permit) -> T | None:
        """Makes one call; a failure is counted, told to the breaker, and worth nothing more than None."""
        parent = context_from_traceparent(question.traceparent)
        try:
            name = f"{SERVICE}/{question.operation}"
            with client_span(name, parent, request_id=question.request_id) as (span, metadata):
                if question.request_id:
                    span.update_name(Stage.KV_LOOKUP.value)
                signed = (*metadata, *self._access.metadata.items())
                answer = await method(question.message, timeout=question.timeout_seconds, metadata=signed)
        except grpc.aio.AioRpcError as error:
            self._metrics.note_second_level_failure(question.operation.lower())
            if self._breaker.failed(permit):
                log.warning("kvstore does not answer; going on without it", code=error.code().name)
            return None
        except asyncio.CancelledError:
            self._breaker.abandoned(permit)
            raise
        if self._breaker.succeeded(permit):
            log.info("kvstore answers again")
        return answer

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _publish_order(
    session: RunnerSession, offered: PublishRange, grant: kvstore_pb2.Grant, integrity_key: bytes
) -> PublishOrder:
    first, end = grant.first_block, grant.first_block + grant.blocks
    size = session.pool.block_tokens
    return PublishOrder(
        transfer_id=session.transfers.next_id(),
        lease_id=grant.lease_id,
        value=ValueRef(grant.value_key, integrity_key),
        blocks=tuple(
            PlacedBlock(position - first, offered.block_ids[position], offered.keys[position])
            for position in range(first, end)
        ),
        token_ids=offered.token_ids[first * size : end * size],
        expiry_seconds=grant.value_expiry_seconds,
        traceparent=offered.traceparent,
    )
