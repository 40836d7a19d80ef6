"""The kvstore over real gRPC, with a real Valkey that comes, goes, forgets and fills up."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from byte_pool import IDENTITY, BytePool, block_key, load_order, publish_order
from valkey_server import ValkeyServer

from headrace.v1 import kvstore_pb2 as pb
from headrace.v1.kvstore_pb2_grpc import KvStoreServiceStub, add_KvStoreServiceServicer_to_server
from services.common.breaker import Breaker, BreakerSettings
from services.common.config import ProcessConfig
from services.common.errors import from_rpc_error
from services.common.process import GrpcServer
from services.common.value_header import TAG_BYTES, encode_head
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
        return await self.stub.Lookup(pb.LookupRequest(tenant_namespace=tenant, block_keys=keys or chain()), timeout=5)

    async def hits(self, tenant: str = "a") -> int:
        return sum(run.blocks for run in (await self.look_up(tenant=tenant)).runs)

    async def lease(self, keys: list[bytes] | None = None, tenant: str = "a") -> pb.LeaseResponse:
        request = pb.LeaseRequest(
            tenant_namespace=tenant, block_keys=keys or chain(), block_bytes=IDENTITY.block_bytes, runner_id="r"
        )
        return await self.stub.Lease(request, timeout=5)

    async def commit(self, lease_id: int, *, is_stored: bool = True, stored_bytes: int = 100) -> bool:
        request = pb.CommitRequest(lease_id=lease_id, is_stored=is_stored, stored_bytes=stored_bytes)
        return (await self.stub.Commit(request, timeout=5)).is_visible

    async def usage(self, tenant: str = "a") -> pb.GetUsageResponse:
        return await self.stub.GetUsage(pb.GetUsageRequest(tenant_namespace=tenant), timeout=5)


@asynccontextmanager
async def serving(folder: Path, url: str | None, **settings: Any) -> AsyncIterator[KvStore]:
    """Serves a kvstore from this process, put together as its __main__ does."""
    config = KvStoreConfig(redis_url=url, secret_file=str(folder / "secret"), **settings)
    store = build_store(config, Breaker(BreakerSettings(open_seconds=0.05, open_max_seconds=0.1)))
    server = GrpcServer(ProcessConfig(), [SERVICE], is_internal=True)
    add_KvStoreServiceServicer_to_server(KvStoreServicer(store), server.server)
    address = f"unix:{folder}/k{time.monotonic_ns()}.sock"
    await server.start([address])
    tasks = [asyncio.create_task(work) for work in background_work(store, config)]
    async with grpc.aio.insecure_channel(address) as channel:
        yield KvStore(KvStoreServiceStub(channel), store)
    for task in tasks:
        task.cancel()
    await server.stop(1)


@asynccontextmanager
async def transfers(valkey: ValkeyServer) -> AsyncIterator[tuple[BytePool, Callable[..., Any]]]:
    """Yields a runner's pool, and a function that carries out one order."""
    pool = BytePool()
    moving = L2Transfers(L2Config(valkey.url), pool, IDENTITY)

    async def carry_out(submit: str, order: Any) -> TransferReport:
        loop, ended = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        getattr(moving, submit)(order, lambda report: loop.call_soon_threadsafe(ended.set_result, report))
        report: TransferReport = await asyncio.wait_for(ended, 10)
        return report

    yield pool, carry_out
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
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - a state of other processes, which signal nothing
            await asyncio.sleep(0.01)


@pytest.fixture
def folder(valkey: ValkeyServer) -> Path:
    """A folder whose path is short enough for a socket."""
    return valkey.folder


@pytest.fixture
async def kvstore(valkey: ValkeyServer, folder: Path) -> AsyncIterator[KvStore]:
    async with serving(folder, valkey.url) as kvstore:
        yield kvstore


async def test_blocks_are_visible_only_after_the_value_is_written(kvstore: KvStore) -> None:
    (grant,) = (await kvstore.lease()).grants
    assert (grant.first_block, grant.blocks, grant.value_expiry_seconds) == (0, BLOCKS, 86_400)
    assert grant.lease_milliseconds == 10_000
    assert await kvstore.hits() == 0
    assert not (await kvstore.lease()).grants, "somebody writes them already"
    assert not await kvstore.commit(grant.lease_id, is_stored=False)
    assert await kvstore.hits() == 0
    assert (await kvstore.lease()).grants, "the right to write was given back"


async def test_a_stored_chain_is_found_and_its_bytes_verify(kvstore: KvStore, valkey: ValkeyServer) -> None:
    await store_chain(kvstore, valkey)
    response = await kvstore.look_up([*chain(), block_key(99)])
    (run,) = response.runs
    assert (run.first_index, run.blocks, response.degraded_reason) == (0, BLOCKS, "")
    async with transfers(valkey) as (pool, carry_out):
        order = load_order(range(BLOCKS), 10, value_key=run.value_key, integrity_key=response.integrity_key)
        assert (await carry_out("submit_load", order)).outcome is Outcome.DONE
        assert pool.blocks[10 : 10 + BLOCKS] == pool.blocks[:BLOCKS]
    usage = await kvstore.usage()
    assert (usage.blocks, usage.values, usage.bytes) == (BLOCKS, 1, BLOCKS * IDENTITY.block_bytes)


async def test_large_chains_become_values_of_the_configured_size(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, value_mib=3 * IDENTITY.block_bytes / 2**20) as kvstore:
        response = await store_chain(kvstore, valkey)
        assert [(grant.first_block, grant.blocks) for grant in response.grants] == [(0, 3), (3, 3), (6, 2)]
        runs = (await kvstore.look_up()).runs
        assert [(run.first_index, run.blocks) for run in runs] == [(0, 3), (0, 3), (0, 2)]
        valkey.command("DEL", runs[1].value_key)
        assert await kvstore.hits() == 3, "what lies behind a gap is of no use"
        assert [grant.first_block for grant in (await kvstore.lease()).grants] == [3]


async def test_two_tenants_never_meet(kvstore: KvStore, valkey: ValkeyServer) -> None:
    """KV-1: not by keys, not by namespaces, not by integrity keys."""
    stored = await store_chain(kvstore, valkey, tenant="a")
    assert await kvstore.hits("b") == 0
    other = await kvstore.lease(tenant="b")
    assert len(other.grants) == 1
    assert other.integrity_key != stored.integrity_key
    assert other.grants[0].value_key.split(":")[2] != stored.grants[0].value_key.split(":")[2]
    assert (await kvstore.usage("b")).blocks == 0
    async with transfers(valkey) as (pool, carry_out):
        order = load_order(range(BLOCKS), 10, value_key=stored.grants[0].value_key, integrity_key=other.integrity_key)
        assert (await carry_out("submit_load", order)).outcome is Outcome.CORRUPT
        assert pool.written == []


async def test_flushed_and_evicted_values_are_no_hits_and_leave_the_index(
    kvstore: KvStore, valkey: ValkeyServer
) -> None:
    await store_chain(kvstore, valkey)
    valkey.command("FLUSHALL")
    response = await kvstore.look_up()
    assert (list(response.runs), response.degraded_reason) == ([], "")
    assert (await kvstore.usage()).values == 0
    await store_chain(kvstore, valkey)
    assert await kvstore.hits() == BLOCKS


async def test_values_that_nobody_asks_for_leave_the_index_too(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, sweep_values_per_second=10_000) as kvstore:
        await store_chain(kvstore, valkey)
        valkey.command("FLUSHALL")

        async def is_empty() -> bool:
            return (await kvstore.usage()).blocks == 0

        await until(is_empty)


async def test_an_expired_lease_is_given_back(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, lease_seconds=0.1) as kvstore:
        (first,) = (await kvstore.lease()).grants

        async def is_granted_again() -> Any:
            return (await kvstore.lease()).grants

        await until(is_granted_again)
        assert not await kvstore.commit(first.lease_id), "its holder comes too late"


async def test_a_restarted_kvstore_finds_what_redis_holds(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url) as kvstore:
        await store_chain(kvstore, valkey)
        before = await kvstore.usage()
    valkey.command("SET", "headrace:1:" + "a" * 32 + ":" + "b" * 24, "no value of ours")
    valkey.command("HSET", "headrace:1:" + "a" * 32 + ":" + "c" * 24, "field", "nor this")
    valkey.command("SET", "headrace:1:odd", "x" * 5000)
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return await kvstore.hits() == BLOCKS

        await until(is_found)
        assert await kvstore.usage() == before
        assert kvstore.store.index.totals.values == 1
        (run,), key = (response := await kvstore.look_up()).runs, response.integrity_key
        async with transfers(valkey) as (_, carry_out):
            order = load_order(range(BLOCKS), 10, value_key=run.value_key, integrity_key=key)
            assert (await carry_out("submit_load", order)).outcome is Outcome.DONE


async def test_a_truncated_value_is_not_found_again_after_a_restart(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url) as kvstore:
        whole, cut = await store_chain(kvstore, valkey), await store_chain(kvstore, valkey, tenant="b")
        key = cut.grants[0].value_key
        valkey.command("SET", key, valkey.command("GET", key)[:-1])
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return kvstore.store.index.has_value(whole.grants[0].value_key)

        await until(is_found)
        assert await kvstore.hits("b") == 0


async def test_many_values_are_found_again_while_it_serves(valkey: ValkeyServer, folder: Path) -> None:
    """Several scans and batches; lookups are answered meanwhile."""
    numbers = range(16)
    async with AsyncExitStack() as stack:
        kvstore = await stack.enter_async_context(serving(folder, valkey.url))
        _, carry_out = await stack.enter_async_context(transfers(valkey))
        for tenant in range(300):
            keys = [hashlib.sha256(b"%d %d" % (tenant, number)).digest() for number in numbers]
            response = await kvstore.lease(keys, tenant=f"t{tenant}")
            (grant,) = response.grants
            order = publish_order(numbers, value_key=grant.value_key, integrity_key=response.integrity_key)
            await carry_out("submit_publish", order)
    valkey.command("MSET", *(word for number in range(5000) for word in (f"of somebody else:{number}", "x")))
    async with serving(folder, valkey.url) as kvstore:

        async def is_complete() -> bool:
            began = time.perf_counter()
            await kvstore.look_up()
            assert time.perf_counter() - began < 0.5
            return kvstore.store.index.totals.values == 300

        await until(is_complete)


async def test_a_head_beyond_the_first_read_is_found_again_whole(valkey: ValkeyServer, folder: Path) -> None:
    keys = chain(*range(200))
    async with serving(folder, valkey.url) as kvstore:
        (grant,) = (await kvstore.lease(keys)).grants
        assert grant.blocks == 200
        head = encode_head(grant.value_key, "float32", "layout", 16, keys, range(800))
        valkey.command("SET", grant.value_key, head + bytes(200 * 16 + TAG_BYTES))
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return [run.blocks for run in (await kvstore.look_up(keys)).runs] == [200]

        await until(is_found)


async def test_without_redis_it_says_so_and_answers(tmp_path: Path, folder: Path) -> None:
    async with serving(folder, None) as kvstore:
        found, granted = await kvstore.look_up(), await kvstore.lease()
        assert (list(found.runs), found.degraded_reason) == ([], "REDIS_NOT_CONFIGURED")
        assert (list(granted.grants), granted.degraded_reason) == ([], "REDIS_NOT_CONFIGURED")


async def test_a_hung_redis_costs_its_budget_then_nothing_and_hits_come_back(
    kvstore: KvStore, valkey: ValkeyServer
) -> None:
    """L2-5."""
    await store_chain(kvstore, valkey)
    valkey.pause()
    reasons = set()
    for _ in range(3):
        began = time.perf_counter()
        reasons.add((await kvstore.look_up()).degraded_reason)
        assert time.perf_counter() - began < 0.3
    assert reasons == {"REDIS_TIMEOUT"}
    began = time.perf_counter()
    for _ in range(20):
        assert (await kvstore.look_up()).degraded_reason in ("REDIS_UNAVAILABLE", "REDIS_TIMEOUT")
        assert not (await kvstore.lease(chain(50))).grants
    assert time.perf_counter() - began < 1.0
    valkey.resume()

    async def is_back() -> bool:
        return await kvstore.hits() == BLOCKS

    await until(is_back)


async def test_callers_with_less_patience_open_the_breaker_as_well(kvstore: KvStore, valkey: ValkeyServer) -> None:
    """L2-5: else each of them would wait its whole limit, for ever."""
    await store_chain(kvstore, valkey)
    valkey.pause()
    request = pb.LookupRequest(tenant_namespace="a", block_keys=chain())

    async def is_open() -> bool:
        with suppress(grpc.aio.AioRpcError):
            await kvstore.stub.Lookup(request, timeout=0.03)
        assert kvstore.store.redis is not None
        return kvstore.store.redis.is_away

    await until(is_open)


async def test_a_redis_absent_at_start_is_used_and_searched_when_it_comes(valkey: ValkeyServer, folder: Path) -> None:
    """L2-5: the start does not need Redis."""
    async with serving(folder, valkey.url) as kvstore:
        stored = await store_chain(kvstore, valkey)
    key = stored.grants[0].value_key
    kept = valkey.command("GET", key)
    valkey.stop()
    async with serving(folder, valkey.url) as kvstore:
        await asyncio.gather(*(kvstore.look_up() for _ in range(5)))
        valkey.start()
        valkey.command("SET", key, kept)

        async def is_found() -> bool:
            return await kvstore.hits() == BLOCKS

        await until(is_found)


async def test_a_caller_that_gives_up_leaves_nothing_behind(kvstore: KvStore, valkey: ValkeyServer) -> None:
    """L2-6 and L2-7, end to end: calls cancelled while Redis is slow, then right answers to others."""
    await store_chain(kvstore, valkey)
    valkey.command("CLIENT", "PAUSE", 40, "ALL")
    calls = [asyncio.ensure_future(kvstore.look_up(tenant=tenant)) for tenant in "ababababab"]
    await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    async def is_right() -> bool:
        assert await kvstore.hits("b") == 0
        return await kvstore.hits("a") == BLOCKS

    await until(is_right)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda kvstore: kvstore.look_up(tenant=""), "tenant_namespace"),
        (lambda kvstore: kvstore.look_up(tenant="x" * 257), "tenant_namespace"),
        (lambda kvstore: kvstore.look_up([b"short"]), "block_keys[0]"),
        (lambda kvstore: kvstore.lease([*chain(1), bytes(33)]), "block_keys[1]"),
        (lambda kvstore: kvstore.look_up([bytes(32)] * 65_537), "block_keys"),
        (
            lambda kvstore: kvstore.stub.Lease(pb.LeaseRequest(tenant_namespace="a", block_keys=chain())),
            "block_bytes",
        ),
        (lambda kvstore: kvstore.usage(tenant=""), "tenant_namespace"),
    ],
)
async def test_a_request_that_makes_no_sense_names_the_field(
    kvstore: KvStore, call: Callable[[KvStore], Any], field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(kvstore)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(caught.value).violations[0].field == field


async def test_an_unknown_lease_is_no_error(kvstore: KvStore) -> None:
    assert not await kvstore.commit(12345)


async def test_watching_is_not_built_yet_and_says_so(kvstore: KvStore) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in kvstore.stub.WatchBlocks(pb.WatchBlocksRequest()):
            pass
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert from_rpc_error(caught.value).reason == "NOT_IMPLEMENTED"
