"""The kvstore's questions to a real Valkey: no reply reaches the wrong asker, and nobody waits for a dead one."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from polling import until
from valkey_server import ValkeyServer

from services.common.breaker import Breaker, BreakerSettings
from services.common.config import ConfigError
from services.kvstore.redis_index import MAX_IDLE_CONNECTIONS, RedisAway, RedisIndex


@asynccontextmanager
async def slow_proxy(valkey: ValkeyServer, seconds: float) -> AsyncIterator[str]:
    """Yields the URL of a socket behind which every reply comes late."""
    path = str(Path(valkey.folder) / "slow.sock")
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(delay)
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        below_reader, below_writer = await asyncio.open_unix_connection(valkey.socket_path)
        for pair, delay in (((reader, below_writer), 0.0), ((below_reader, writer), seconds)):
            task = asyncio.ensure_future(carry(*pair, delay))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield f"unix://{path}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def asking(url: str, budget_seconds: float = 1.0) -> AsyncIterator[RedisIndex]:
    """Yields a RedisIndex whose breaker closes again by itself."""
    settings = BreakerSettings(failures=3, open_seconds=0.05, open_max_seconds=0.1)
    redis = RedisIndex(url, budget_seconds, Breaker(settings), lambda _reason: None)
    probing = asyncio.create_task(redis.keep_probing())
    try:
        yield redis
    finally:
        probing.cancel()
        await redis.close()


async def get(redis: RedisIndex, key: str) -> object:
    (reply,) = await redis.ask([("GET", key)], 1.0)
    return reply


async def test_a_cancelled_questions_reply_never_reaches_the_next_asker(valkey: ValkeyServer) -> None:
    """L2-6."""
    valkey.command("MSET", "foo", "FOO", "bar", "BAR")
    async with slow_proxy(valkey, 0.1) as url, asking(url) as redis:
        assert await get(redis, "foo") == b"FOO"
        for _ in range(5):
            cancelled = asyncio.create_task(get(redis, "foo"))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert await get(redis, "bar") == b"BAR"


async def test_a_reply_that_came_too_late_never_reaches_the_next_asker(valkey: ValkeyServer) -> None:
    """L2-6, by the time limit instead of the caller."""
    valkey.command("MSET", "foo", "FOO", "bar", "BAR")
    async with slow_proxy(valkey, 0.1) as url, asking(url) as redis:
        await get(redis, "foo")
        with pytest.raises(RedisAway) as caught:
            await redis.ask([("GET", "foo")], 0.02)
        assert caught.value.reason == "REDIS_TIMEOUT"
        assert await get(redis, "bar") == b"BAR"


async def test_cancelled_questions_use_up_no_connection(valkey: ValkeyServer) -> None:
    """L2-7: ten exchanges cancelled in the middle; the next ones work at once, and the server holds few connections."""
    async with slow_proxy(valkey, 0.1) as url, asking(url) as redis:
        tasks = [asyncio.create_task(redis.ask([("INCR", "a"), ("INCR", "b")], 5.0)) for _ in range(10)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(redis.ask([("PING",)], 2.0) for _ in range(10)))

        def connections() -> int:
            return int(valkey.command("INFO", "clients")["connected_clients"])

        await until(lambda: connections() <= MAX_IDLE_CONNECTIONS + 1)


async def test_missing_values_are_told_and_lookups_keep_the_others_from_eviction(valkey: ValkeyServer) -> None:
    async with asking(valkey.url) as redis:
        valkey.command("SET", "here", "x")
        assert await redis.find_missing(["here", "gone"], counts_as_use=True) == {"gone"}
        assert await redis.find_missing(["here", "gone"], counts_as_use=False) == {"gone"}


async def test_a_hung_server_costs_its_budget_a_few_times_then_nothing_until_it_is_back(valkey: ValkeyServer) -> None:
    async with asking(valkey.url, budget_seconds=0.05) as redis:
        await redis.find_missing(["x"], counts_as_use=True)
        valkey.pause()
        for _ in range(3):
            began = time.perf_counter()
            with pytest.raises(RedisAway):
                await redis.find_missing(["x"], counts_as_use=True)
            assert time.perf_counter() - began < 1.0
        began = time.perf_counter()
        for _ in range(1000):
            with pytest.raises(RedisAway, match="breaker"):
                await redis.find_missing(["x"], counts_as_use=True)
        assert time.perf_counter() - began < 1.0
        valkey.resume()
        async with asyncio.timeout(10):
            await redis.wait_answering()
        assert await redis.find_missing(["x"], counts_as_use=True) == {"x"}


async def test_idle_connections_that_a_restart_broke_cost_no_answer(valkey: ValkeyServer) -> None:
    async with asking(valkey.url) as redis:
        await asyncio.gather(*(redis.ask([("PING",)], 1.0) for _ in range(4)))
        valkey.stop()
        valkey.start()
        assert await redis.find_missing(["x"], counts_as_use=True) == {"x"}


async def test_a_refusal_is_told_and_does_not_open_the_breaker(valkey: ValkeyServer) -> None:
    valkey.command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "+ping", "+client")
    async with asking(f"unix://{valkey.socket_path}?username=poor&password=pw") as redis:
        for _ in range(5):
            with pytest.raises(RedisAway, match="refuses") as caught:
                await redis.find_missing(["x"], counts_as_use=True)
            assert caught.value.reason == "REDIS_REFUSED"
        assert not redis.is_away


def test_an_url_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="REDIS_URL"):
        RedisIndex("http://host", 1.0, Breaker(BreakerSettings()), lambda _reason: None)
