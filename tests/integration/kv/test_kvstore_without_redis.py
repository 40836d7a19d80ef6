"""The kvstore while its Valkey is absent, hung or slow: quick answers, right ones, and no help needed to recover."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import grpc
from kvstore_harness import BLOCKS, KvStore, chain, serving, store_chain, until
from valkey_server import ValkeyServer

from headrace.v1 import kvstore_pb2 as pb


async def test_without_redis_it_says_so_and_answers(folder: Path) -> None:
    async with serving(folder, None) as kvstore:
        found, granted = await kvstore.look_up(), await kvstore.lease()
        assert (list(found.runs), found.degraded_reason) == ([], "REDIS_NOT_CONFIGURED")
        assert (list(granted.grants), granted.degraded_reason) == ([], "REDIS_NOT_CONFIGURED")


async def test_a_hung_redis_costs_its_budget_then_nothing_and_hits_come_back(
    valkey: ValkeyServer, folder: Path
) -> None:
    """L2-5."""
    async with serving(folder, valkey.url, redis_budget_seconds=0.05) as kvstore:
        await store_chain(kvstore, valkey)
        valkey.pause()
        began = time.perf_counter()
        assert {(await kvstore.look_up()).degraded_reason for _ in range(3)} == {"REDIS_TIMEOUT"}
        for _ in range(20):
            assert (await kvstore.look_up()).degraded_reason in ("REDIS_UNAVAILABLE", "REDIS_TIMEOUT")
            assert not (await kvstore.lease(chain(50))).grants
        assert time.perf_counter() - began < 3.0
        valkey.resume()

        async def is_back() -> bool:
            return await kvstore.hits() == BLOCKS

        await until(is_back)


async def test_callers_with_less_patience_open_the_breaker_as_well(valkey: ValkeyServer, folder: Path) -> None:
    """L2-5: else each of them would wait its whole limit, for ever."""
    async with serving(folder, valkey.url, redis_budget_seconds=0.4) as kvstore:
        await store_chain(kvstore, valkey)
        valkey.pause()
        request = pb.LookupRequest(tenant_namespace="a", block_keys=chain())

        async def is_open() -> bool:
            with suppress(grpc.aio.AioRpcError):
                await kvstore.stub.Lookup(request, timeout=0.3)
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
