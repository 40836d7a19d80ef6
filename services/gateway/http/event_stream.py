"""Server-sent events: the answer piece by piece."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.common.errors import ServiceError
from services.gateway.http.api_error import ApiError
from services.gateway.http.connection import run_while_connected

log = structlog.get_logger()

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies of the nginx kind would collect the stream otherwise.
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\n\n"
_DONE = b"data: [DONE]\n\n"
# Made once: json.dumps makes one for every event.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def frame(event: dict[str, Any]) -> bytes:
    """Returns an event as it goes over the wire."""
    return b"data: " + _ENCODER.encode(event).encode() + b"\n\n"


class EventStream(Response):
    """Streams events; a failure before the first one is raised, a later one is an error event without [DONE]."""

    def __init__(
        self,
        events: AsyncGenerator[dict[str, Any], None],
        *,
        closing: asyncio.Event,
        ping_seconds: float,
        to_api_error: Callable[[ServiceError], ApiError],
    ) -> None:
        self._events = events
        self._closing = closing
        self._ping_seconds = ping_seconds
        self._to_api_error = to_api_error
        self._has_started = False
        self._sent_at = time.monotonic()
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the stream to its end, whichever that is."""
        del scope
        try:
            await run_while_connected(receive, self._closing, self._run(send))
        except ServiceError as error:
            if not self._has_started:
                raise
            await self._fail(send, error)
        except Exception as error:
            if not self._has_started:
                raise
            log.exception("unexpected error in a stream")
            bug = ServiceError(f"unexpected {type(error).__name__}; the server's log has the trace of this bug")
            await self._fail(send, bug)

    async def _run(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = await anext(events)
            self._has_started = True
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            pings = asyncio.create_task(self._ping(send))
            try:
                await self._write(send, frame(first))
                async for event in events:
                    await self._write(send, frame(event))
                await self._write(send, _DONE)
            finally:
                pings.cancel()
                await asyncio.gather(pings, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._sent_at = time.monotonic()

    async def _ping(self, send: Send) -> None:
        """Sends a comment whenever nothing else has been sent for a while."""
        while True:
            wait = self._sent_at + self._ping_seconds - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await self._write(send, _PING)

    async def _fail(self, send: Send, error: ServiceError) -> None:
        api_error = self._to_api_error(error)
        await send({"type": "http.response.body", "body": frame(api_error.body()), "more_body": False})
