import asyncio
import time

import grpc
import pytest

from services.common.drain import DrainInterceptor
from services.common.errors import from_rpc_error


class Held:
    """A handler that runs until it is let go."""

    def __init__(self):
        self.started, self.released = asyncio.Event(), asyncio.Event()

    async def answer(self, request, _context):
        self.started.set()
        await self.released.wait()
        return request


async def test_a_drain_waits_for_running_calls_and_refuses_new_ones(serve):
    held, running = Held(), DrainInterceptor()
    channel = await serve({"Run": ("unary_unary", held.answer)}, [running])
    call = channel.unary_unary("/test.v1.Echo/Run")(b"x")
    async with asyncio.timeout(5):
        await held.started.wait()
        drain = asyncio.create_task(running.drain(60))
        await asyncio.sleep(0)

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.v1.Echo/Run")(b"y")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert from_rpc_error(caught.value).message == "this process is shutting down; try another"
        assert not drain.done()
        held.released.set()
        assert await call == b"x"
        await drain


async def test_a_drain_ends_at_its_time(serve):
    held, running = Held(), DrainInterceptor()
    channel = await serve({"Run": ("unary_unary", held.answer)}, [running])
    call = channel.unary_unary("/test.v1.Echo/Run")(b"x")
    async with asyncio.timeout(5):
        await held.started.wait()
        await running.drain(0.05)
        assert not call.done()
        held.released.set()
        assert await call == b"x"


@pytest.mark.parametrize(
    ("service", "method"), [("headrace.v1.SchedulerService", "Attach"), ("grpc.health.v1.Health", "Watch")]
)
async def test_a_drain_waits_for_no_endless_call(serve, service, method):
    held, running = Held(), DrainInterceptor()
    channel = await serve({method: ("unary_unary", held.answer)}, [running], service=service)
    call = channel.unary_unary(f"/{service}/{method}")(b"x")
    async with asyncio.timeout(5):
        await held.started.wait()
        began = time.monotonic()
        await running.drain(60)
        assert time.monotonic() - began < 1
        held.released.set()
        assert await call == b"x"


async def test_a_call_that_has_ended_is_forgotten(serve):
    running = DrainInterceptor()
    held = Held()
    held.released.set()
    channel = await serve({"Run": ("unary_unary", held.answer)}, [running])
    for _ in range(5):
        await channel.unary_unary("/test.v1.Echo/Run")(b"x")

    async with asyncio.timeout(1):
        await running.drain(60)
