"""Asks Redis what it holds: briefly, on connections that no late reply can survive, and not at all while it is away."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from redis.asyncio.connection import ConnectionPool
from redis.exceptions import RedisError, ResponseError

from services.common.breaker import Breaker, Permit
from services.common.config import ConfigError

log = structlog.get_logger()

Command = tuple[str | int, ...]
Reply = object
Connection = Any  # redis-py types only half of what its connections do
MAX_IDLE_CONNECTIONS = 4


class RedisAway(Exception):
    """Redis cannot say anything now; reason is UPPER_SNAKE."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RedisIndex:
    """Questions about stored values. A connection whose exchange did not end well is dropped, never used again."""

    def __init__(self, url: str, budget_seconds: float, breaker: Breaker, on_error: Callable[[str], None]) -> None:
        try:
            # The pool only reads the URL and makes connections: who gets one, and what becomes of it, is decided here.
            factory: Any = ConnectionPool.from_url(url, protocol=2)
            sample: Connection = factory.make_connection()
        except (ValueError, TypeError) as error:
            raise ConfigError(f"HEADRACE_KVSTORE_REDIS_URL cannot be used: {error}") from error
        self._factory = factory
        self._server = str(sample.repr_pieces()[0][1])
        self._budget_seconds = budget_seconds
        self._breaker = breaker
        self._on_error = on_error
        self._idle: list[Connection] = []
        self._opened = asyncio.Event()
        self._closed = asyncio.Event()
        self._closed.set()

    @property
    def is_away(self) -> bool:
        """Tells whether Redis is left alone now."""
        return self._breaker.is_open

    async def find_missing(self, value_keys: Sequence[str], *, counts_as_use: bool) -> set[str]:
        """Returns which of these values Redis does not hold. Raises RedisAway.

        One that is about to be read counts as used, so that Redis does not choose it for eviction meanwhile.
        """
        command = "TOUCH" if counts_as_use else "EXISTS"
        replies = await self.ask([(command, key) for key in value_keys], self._budget_seconds)
        for reply in replies:
            if isinstance(reply, ResponseError):
                self._on_error("REDIS_REFUSED")
                raise RedisAway("REDIS_REFUSED", f"Redis at {self._server} refuses: {reply}")
        return {key for key, reply in zip(value_keys, replies, strict=True) if reply == 0}

    async def ask(self, commands: Sequence[Command], budget_seconds: float) -> list[Reply]:
        """Sends commands in one round trip and returns a reply or ResponseError for each. Raises RedisAway."""
        permit = self._breaker.permit()
        if permit is None:
            raise RedisAway("REDIS_UNAVAILABLE", f"Redis at {self._server} does not answer; the breaker is open")
        started = time.monotonic()
        try:
            replies = await self._within(commands, budget_seconds)
        except RedisAway as away:
            self._note_failure(permit, away)
            raise
        except asyncio.CancelledError:
            # The caller's own limit may be the shorter one, and it must not hide that Redis hangs.
            if time.monotonic() - started >= budget_seconds / 2:
                self._note_failure(permit, RedisAway("REDIS_TIMEOUT", "the caller gave up waiting"))
            else:
                self._breaker.abandoned(permit)
            raise
        self._breaker.succeeded(permit)
        return replies

    async def wait_answering(self) -> None:
        """Returns when the breaker is closed."""
        await self._closed.wait()

    async def keep_probing(self) -> None:
        """Asks a Redis that is away, now and then, whether it is back, so that no request has to find out."""
        while True:
            await self._opened.wait()
            while (wait_seconds := self._breaker.seconds_until_probe()) is not None:
                await asyncio.sleep(wait_seconds)
                permit = self._breaker.probe()
                if permit is not None:
                    await self._probe(permit)
            self._opened.clear()
            self._closed.set()

    async def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _probe(self, permit: Permit) -> None:
        try:
            replies = await self._within([("PING",)], self._budget_seconds)
        except RedisAway:
            self._breaker.failed(permit)
            return
        if isinstance(replies[0], ResponseError):  # for example while it loads its data
            self._breaker.failed(permit)
        elif self._breaker.succeeded(permit):
            log.info("Redis answers again", redis=self._server)

    def _note_failure(self, permit: Permit, away: RedisAway) -> None:
        self._on_error(away.reason)
        if self._breaker.failed(permit):
            log.warning(
                "Redis does not answer; lookups find nothing until it does", redis=self._server, error=str(away)
            )
            self._closed.clear()
            self._opened.set()

    async def _within(self, commands: Sequence[Command], budget_seconds: float) -> list[Reply]:
        try:
            async with asyncio.timeout(budget_seconds):
                return await self._exchange_on_some(commands)
        except TimeoutError as error:
            message = f"Redis at {self._server} did not answer within {budget_seconds * 1000:.0f} ms"
            raise RedisAway("REDIS_TIMEOUT", message) from error
        except (RedisError, OSError) as error:
            raise RedisAway("REDIS_UNAVAILABLE", f"Redis at {self._server}: {error}") from error

    async def _exchange_on_some(self, commands: Sequence[Command]) -> list[Reply]:
        if self._idle:
            try:
                return await self._exchange(self._idle.pop(), commands)
            except (RedisError, OSError):
                # It broke while it was idle, and so did the others; a new one tells how Redis is now.
                await self.close()
        return await self._exchange(self._factory.make_connection(), commands)

    async def _exchange(self, connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        is_clean = False
        try:
            await connection.connect()
            await connection.send_packed_command(connection.pack_commands(commands))
            replies = [await _read(connection) for _ in commands]
            is_clean = True
        finally:
            # Also when cancelled: the reply is still to come, and would be taken for the next caller's.
            if is_clean and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
        return replies


async def _read(connection: Connection) -> Reply:
    try:
        reply: Reply = await connection.read_response()
    except ResponseError as error:
        return error
    return reply
