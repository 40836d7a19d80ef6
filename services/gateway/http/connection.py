"""Ends a request's work at once when its client goes away, or when the server does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from services.common.errors import Unavailable
from services.gateway.http.api_error import ClientGone

T = TypeVar("T")


async def run_while_connected(receive: Receive, closing: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Runs the work; cancels it and raises ServiceError when the client disconnects or the server closes first."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(receive))
    closed = asyncio.create_task(closing.wait())
    try:
        await asyncio.wait((task, gone, closed), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientGone("the client closed the connection")
        raise Unavailable("the server is shutting down; send the request again")
    finally:
        for part in (task, gone, closed):
            part.cancel()
        await asyncio.gather(task, gone, closed, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    """Returns when the connection is lost; the body has been read, so nothing else is expected."""
    while (await receive())["type"] != "http.disconnect":
        pass
