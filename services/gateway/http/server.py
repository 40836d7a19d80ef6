"""Runs the HTTP API inside the gateway's event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.applications import Starlette

from services.common.config import ConfigError
from services.gateway.http.listener import timed_connection
from services.gateway.http.settings import HttpSettings

_BACKLOG = 1024
# A peer that vanished without a word is noticed after about 30 + 3 * 10 seconds.
# Not every system has every option.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
# Longer than the usual idle time of proxies, so that it is they who close a connection.
_IDLE_SECONDS = 75
# For the last error events to leave, after the grace period.
_LAST_WORDS_SECONDS = 5


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process's own decide."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


class HttpServer:
    """Listens, serves, and stops without dropping a running request before its time."""

    def __init__(self, app: Starlette, addresses: Sequence[str], settings: HttpSettings | None = None) -> None:
        limits = settings or HttpSettings()
        self._app = app
        self._addresses = addresses
        config = uvicorn.Config(
            app,
            http=timed_connection(limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_IDLE_SECONDS,
            h11_max_incomplete_event_size=limits.head_bytes,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.ports: list[int] = []
        """The bound port of every address, also where 0 was asked for."""

    async def start(self) -> None:
        """Listens on every address; raises ConfigError for one that is taken or malformed."""
        sockets = [_bind(address) for address in self._addresses]
        self.ports = [bound.getsockname()[1] for bound in sockets]
        self._task = asyncio.create_task(self._server.serve(sockets=sockets))

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more requests, lets running ones finish for a while, then ends them with an error."""
        if self._task is None:
            return
        self._server.should_exit = True
        if not await self._ends_within(grace_seconds):
            self._app.state.closing.set()
            if not await self._ends_within(_LAST_WORDS_SECONDS):
                self._task.cancel()
                await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    async def _ends_within(self, seconds: float) -> bool:
        assert self._task is not None
        done, _ = await asyncio.wait((self._task,), timeout=seconds)
        return bool(done)


def _bind(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        bound = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"cannot serve HTTP on {address}: {error}; is another Headrace running there?") from error
    # Accepted connections inherit the listening socket's options.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return bound
