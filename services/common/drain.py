"""Lets running calls end before a server stops, and refuses new ones in a way that a client may safely repeat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from services.common.errors import Unavailable
from services.common.refusal import refusing_handler

# Calls that live as long as their connection: nobody waits for their end.
ENDLESS = ("/grpc.health.", "/grpc.reflection.", "/headrace.v1.SchedulerService/Attach")


class DrainInterceptor(grpc.aio.ServerInterceptor):
    """Knows the calls that run.

    grpc's own stop would answer calls that arrive in its first moment with CANCELLED, which no client repeats.
    """

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_draining = False
        self._refusal = refusing_handler(Unavailable("this process is shutting down; try another"))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Passes a call on unless the process is about to end."""
        if handler_call_details.method.startswith(ENDLESS):
            return await continuation(handler_call_details)
        if self._is_draining:
            return self._refusal
        # grpc runs interceptors and handler of a call in one task.
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await continuation(handler_call_details)

    async def drain(self, seconds: float) -> None:
        """Refuses new calls from now on and waits for the running ones, for so long at most."""
        self._is_draining = True
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)
