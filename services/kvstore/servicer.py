"""Answers the kvstore's calls: proto to index and leases and back, with Redis asked as little as possible."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from headrace.v1 import kvstore_pb2 as pb
from headrace.v1.kvstore_pb2_grpc import KvStoreServiceServicer
from services.common.errors import NotBuiltYet, errors_as_status
from services.kvstore.checks import check_block_bytes, check_block_keys, check_namespace
from services.kvstore.index import BlockIndex, StoredRun, StoredValue
from services.kvstore.integrity import integrity_key
from services.kvstore.leases import LeaseRequest, LeaseTable
from services.kvstore.metrics import KvStoreMetrics
from services.kvstore.redis_index import RedisAway, RedisIndex
from services.kvstore.value_keys import hash_namespace

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

NOT_CONFIGURED = "REDIS_NOT_CONFIGURED"
TOO_MANY_LEASES = "TOO_MANY_LEASES"


@dataclass(frozen=True, slots=True)
class Store:
    """What the calls work on."""

    index: BlockIndex
    leases: LeaseTable
    secret: bytes
    redis: RedisIndex | None
    metrics: KvStoreMetrics
    value_expiry_seconds: int
    lease_seconds: float


class KvStoreServicer(KvStoreServiceServicer):
    """The KvStoreService. It answers in any state of Redis; degraded_reason says what could not be done."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def Lookup(self, request: pb.LookupRequest, context: Context) -> pb.LookupResponse:
        """Finds the longest stored prefix of a chain."""
        async with errors_as_status(context):
            check_namespace(request.tenant_namespace)
            check_block_keys(request.block_keys)
            started = time.perf_counter()
            runs, degraded = await self._find(request)
            self._note_lookup(request, runs, degraded, time.perf_counter() - started)
            return pb.LookupResponse(
                runs=[pb.StoredRun(value_key=r.value_key, first_index=r.first_index, blocks=r.blocks) for r in runs],
                integrity_key=integrity_key(self._store.secret, request.tenant_namespace),
                degraded_reason=degraded,
            )

    async def Lease(self, request: pb.LeaseRequest, context: Context) -> pb.LeaseResponse:
        """Grants the right to write blocks that nobody has stored or is storing."""
        async with errors_as_status(context):
            check_namespace(request.tenant_namespace)
            check_block_keys(request.block_keys)
            check_block_bytes(request.block_bytes)
            grants, degraded = await self._grant(request)
            self._store.metrics.grants.inc(len(grants))
            return pb.LeaseResponse(
                grants=grants,
                integrity_key=integrity_key(self._store.secret, request.tenant_namespace),
                degraded_reason=degraded,
            )

    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        """Makes a written value visible, or gives its lease back."""
        async with errors_as_status(context):
            result = self._commit(request)
            self._store.metrics.commits.labels(result).inc()
            return pb.CommitResponse(is_visible=result == "visible")

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        """Counts what a namespace stores."""
        async with errors_as_status(context):
            check_namespace(request.tenant_namespace)
            usage = self._store.index.usage(self._namespace(request.tenant_namespace))
            return pb.GetUsageResponse(blocks=usage.blocks, bytes=usage.bytes, values=usage.values)

    async def WatchBlocks(
        self, request: pb.WatchBlocksRequest, context: Context
    ) -> AsyncIterator[pb.WatchBlocksResponse]:
        """Follows the index; a later version answers it."""
        async with errors_as_status(context):
            raise NotBuiltYet("WatchBlocks is not built yet; ask Lookup for the chains that matter")
        yield  # makes this a stream

    def _namespace(self, tenant_namespace: str) -> str:
        return hash_namespace(self._store.secret, tenant_namespace)

    async def _find(self, request: pb.LookupRequest) -> tuple[list[StoredRun], str]:
        """Returns what is stored for certain, and why that may be less than there is."""
        store = self._store
        if store.redis is None:
            return [], NOT_CONFIGURED
        runs = store.index.find_prefix(self._namespace(request.tenant_namespace), request.block_keys)
        if not runs:
            return [], "REDIS_UNAVAILABLE" if store.redis.is_away else ""
        try:
            missing = await store.redis.find_missing([run.value_key for run in runs], counts_as_use=True)
        except RedisAway as away:
            return [], away.reason
        self._forget(missing)
        for place, run in enumerate(runs):
            if run.value_key in missing:
                return runs[:place], ""
        return runs, ""

    def _forget(self, value_keys: set[str]) -> None:
        for value_key in value_keys:
            if self._store.index.remove(value_key):
                self._store.metrics.vanished_values.inc()

    async def _grant(self, request: pb.LeaseRequest) -> tuple[list[pb.Grant], str]:
        store = self._store
        if store.redis is None:
            return [], NOT_CONFIGURED
        if store.redis.is_away:
            return [], "REDIS_UNAVAILABLE"
        if store.leases.is_full:
            return [], TOO_MANY_LEASES
        namespace = self._namespace(request.tenant_namespace)
        held = store.index.values_of(namespace, request.block_keys)
        if held:
            # Whoever offers these blocks may have found out that Redis has lost them.
            try:
                self._forget(await store.redis.find_missing(held, counts_as_use=False))
            except RedisAway as away:
                return [], away.reason
        wanted = LeaseRequest(namespace, request.block_keys, request.block_bytes, request.runner_id)
        leases = store.leases.grant(wanted, lambda key: store.index.holds(namespace, key))
        grants = [
            pb.Grant(
                lease_id=lease.lease_id,
                value_key=lease.value_key,
                first_block=lease.first_block,
                blocks=len(lease.block_keys),
                value_expiry_seconds=store.value_expiry_seconds,
                lease_milliseconds=int(store.lease_seconds * 1000),
            )
            for lease in leases
        ]
        # What a full table leaves out is neither stored nor being stored.
        return grants, TOO_MANY_LEASES if store.leases.is_full else ""

    def _commit(self, request: pb.CommitRequest) -> str:
        store = self._store
        lease = store.leases.end(request.lease_id)
        if lease is None:
            return "unknown"
        if not request.is_stored:
            return "not_stored"
        # Redis counts from the write, which came after the grant: it forgets the value at this time at the earliest.
        expires_at = lease.expires_at - store.lease_seconds + store.value_expiry_seconds
        value = StoredValue(lease.value_key, lease.namespace, lease.block_keys, request.stored_bytes, expires_at)
        # A rebuild that runs meanwhile may have met the value in Redis, whole, before its commit.
        is_visible = store.index.has_value(value.value_key) or store.index.add(value)
        return "visible" if is_visible else "duplicate"

    def _note_lookup(self, request: pb.LookupRequest, runs: list[StoredRun], degraded: str, seconds: float) -> None:
        metrics = self._store.metrics
        found = sum(run.blocks for run in runs)
        metrics.lookups.labels("degraded" if degraded else "hit" if found else "miss").inc()
        metrics.lookup_blocks.inc(len(request.block_keys))
        metrics.hit_blocks.inc(found)
        metrics.lookup_seconds.observe(seconds)
        log.info(
            "lookup",
            stage="KV_LOOKUP",
            blocks=len(request.block_keys),
            found=found,
            degraded_reason=degraded or None,
            duration_ms=round(seconds * 1000, 3),
        )
