"""Sends a handler's stream so that a client that goes away is a clean cancellation, at once, within the handler."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import grpc

# grpc cancels the handler of a dead call right after a write to it has failed.
_CANCELLATION_SECONDS = 1.0


class WritingContext:
    """A call's context that tells when its first message leaves; everything else is the context's own."""

    def __init__(self, context: "grpc.aio.ServicerContext[Any, Any]", note_first: Callable[[], None] | None) -> None:
        self._context = context
        self._note_first = note_first

    async def write(self, message: Any) -> None:
        """Sends a message; raises CancelledError where the client is gone."""
        if self._note_first is not None:
            self._note_first()
            self._note_first = None
        try:
            await self._context.write(message)
        except grpc.aio.InternalError:
            await asyncio.sleep(_CANCELLATION_SECONDS)
            raise asyncio.CancelledError from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


async def write_stream(behaviour: Any, request: Any, context: WritingContext) -> None:
    """Runs a streaming handler, be it a generator or a coroutine that writes.

    grpc itself would drop the generator of a cancelled call and leave its clean-up to the garbage collector.
    """
    answers = behaviour(request, context)
    if not inspect.isasyncgen(answers):
        await answers
        return
    async with aclosing(answers):
        async for message in answers:
            await context.write(message)
