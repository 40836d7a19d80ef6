"""A kvstore that serves real gRPC from the test's own process, with a runner's transfers beside it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from byte_pool import IDENTITY, BytePool, block_key, publish_order
from valkey_server import ValkeyServer

from headrace.v1 import kvstore_pb2 as pb
from headrace.v1.kvstore_pb2_grpc import KvStoreServiceStub, add_KvStoreServiceServicer_to_server
from services.common.breaker import Breaker, BreakerSettings
from services.common.config import ProcessConfig
from services.common.process import GrpcServer
from services.kvstore.__main__ import SERVICE, background_work, build_store
from services.kvstore.config import KvStoreConfig
from services.kvstore.servicer import KvStoreServicer, Store
from services.runner.l2.orders import L2Config, Outcome, TransferReport
from services.runner.l2.transfers import L2Transfers

BLOCKS = 8


def chain(*numbers: int) -> list[bytes]:
    return [block_key(number) for number in numbers or range(BLOCKS)]


class KvStore:
    """A serving kvstore and calls to it."""

    def __init__(self, stub: KvStoreServiceStub, store: Store) -> None:
        self.stub = stub
        self.store = store

    async def look_up(self, keys: list[bytes] | None = None, tenant: str = "a") -> pb.LookupResponse:
        return await self.stub.Lookup(pb.LookupRequest(tenant_namespace=tenant, block_keys=keys or chain()), timeout=20)

    async def hits(self, tenant: str = "a") -> int:
        return sum(run.blocks for run in (await self.look_up(tenant=tenant)).runs)

    async def lease(self, keys: list[bytes] | None = None, tenant: str = "a") -> pb.LeaseResponse:
        request = pb.LeaseRequest(
            tenant_namespace=tenant, block_keys=keys or chain(), block_bytes=IDENTITY.block_bytes, runner_id="r"
        )
        return await self.stub.Lease(request, timeout=20)

    async def commit(self, lease_id: int, *, is_stored: bool = True, stored_bytes: int = 100) -> bool:
        request = pb.CommitRequest(lease_id=lease_id, is_stored=is_stored, stored_bytes=stored_bytes)
        return (await self.stub.Commit(request, timeout=20)).is_visible

    async def usage(self, tenant: str = "a") -> pb.GetUsageResponse:
        return await self.stub.GetUsage(pb.GetUsageRequest(tenant_namespace=tenant), timeout=20)


@asynccontextmanager
async def serving(folder: Path, url: str | None, **settings: Any) -> AsyncIterator[KvStore]:
    """Serves a kvstore from this process, put together as its __main__ does; patient, as test machines are busy."""
    settings = {"redis_budget_seconds": 2.0, **settings}
    config = KvStoreConfig(redis_url=url, secret_file=str(folder / "secret"), **settings)
    store = build_store(config, Breaker(BreakerSettings(open_seconds=0.05, open_max_seconds=0.1)))
    server = GrpcServer(ProcessConfig(), [SERVICE], is_internal=True)
    add_KvStoreServiceServicer_to_server(KvStoreServicer(store), server.server)
    address = f"unix:{folder}/k{time.monotonic_ns()}.sock"
    await server.start([address])
    tasks = [asyncio.create_task(work) for work in background_work(store, config)]
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield KvStore(KvStoreServiceStub(channel), store)
    finally:
        for task in tasks:
            task.cancel()
        await server.stop(1)


@asynccontextmanager
async def transfers(valkey: ValkeyServer) -> AsyncIterator[tuple[BytePool, Callable[..., Any]]]:
    """Yields a runner's pool, and a function that carries out one order."""
    pool = BytePool()
    moving = L2Transfers(L2Config(valkey.url, connect_timeout_seconds=2.0), pool, IDENTITY)

    async def carry_out(submit: str, order: Any) -> TransferReport:
        loop, ended = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        getattr(moving, submit)(order, lambda report: loop.call_soon_threadsafe(ended.set_result, report))
        report: TransferReport = await asyncio.wait_for(ended, 20)
        return report

    try:
        yield pool, carry_out
    finally:
        await asyncio.to_thread(moving.close)


async def store_chain(kvstore: KvStore, valkey: ValkeyServer, tenant: str = "a") -> pb.LeaseResponse:
    """Leases a chain, writes it as a runner does, and commits."""
    response = await kvstore.lease(tenant=tenant)
    async with transfers(valkey) as (_, carry_out):
        for grant in response.grants:
            numbers = range(grant.first_block, grant.first_block + grant.blocks)
            order = publish_order(numbers, value_key=grant.value_key, integrity_key=response.integrity_key)
            report = await carry_out("submit_publish", order)
            assert report.outcome is Outcome.DONE
            assert await kvstore.commit(grant.lease_id, stored_bytes=report.payload_bytes)
    return response


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - a state of other processes, which signal nothing
            await asyncio.sleep(0.01)
