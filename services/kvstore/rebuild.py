"""Finds, after a restart, the values that Redis still holds: beside the serving, bounded, from their heads alone.

A head by itself proves nothing, as only the tag over the whole value does. So the index may be told of a value that a
runner then refuses: that costs a hit, never a wrong byte.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

import structlog

from services.common.value_header import FIXED_BYTES, IndexPart, MalformedValue, decode_index_part, index_part_bytes
from services.kvstore.index import BlockIndex, StoredValue
from services.kvstore.metrics import KvStoreMetrics
from services.kvstore.redis_index import RedisAway, RedisIndex
from services.kvstore.value_keys import SCAN_PATTERN, namespace_of

log = structlog.get_logger()

_SCAN_COUNT = 500
# Holds the index part of most values, so that one round trip reads it.
_FIRST_READ_BYTES = 4096
_BATCH = 64
_BATCH_BUDGET_SECONDS = 1.0
_RETRY_SECONDS = 0.5


class Rebuild:
    """Fills an index from Redis, once."""

    def __init__(self, redis: RedisIndex, index: BlockIndex, metrics: KvStoreMetrics, seconds: float) -> None:
        self._redis = redis
        self._index = index
        self._seconds = seconds
        self._metrics = metrics
        self.is_done = False
        self.values = 0

    async def run(self) -> None:
        """Looks for values until every key was seen or the time is up; begins again after Redis was away."""
        while not self.is_done:
            await self._redis.wait_answering()
            started = time.monotonic()
            try:
                await self._scan(started + self._seconds)
            except RedisAway:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self.is_done = True
            duration_ms = round((time.monotonic() - started) * 1000)
            log.info("looked for stored values", values=self.values, duration_ms=duration_ms)

    async def _scan(self, deadline: float) -> None:
        cursor = "0"
        while time.monotonic() < deadline:
            (reply,) = await self._redis.ask(
                [("SCAN", cursor, "MATCH", SCAN_PATTERN, "COUNT", _SCAN_COUNT)], _BATCH_BUDGET_SECONDS
            )
            next_cursor, keys = _scan_reply(reply)
            for batch in _batches([key for key in keys if not self._index.has_value(key)]):
                if self._index.is_full:
                    return
                await self._read_heads(batch)
            if next_cursor == "0":
                return
            cursor = next_cursor
        log.warning("gave up looking for stored values: too many keys for the time", seconds=self._seconds)

    async def _read_heads(self, keys: Sequence[str]) -> None:
        starts = await self._redis.ask(
            [("GETRANGE", key, 0, _FIRST_READ_BYTES - 1) for key in keys], _BATCH_BUDGET_SECONDS
        )
        facts = await self._redis.ask(
            [(command, key) for key in keys for command in ("STRLEN", "PTTL")], _BATCH_BUDGET_SECONDS
        )
        for place, key in enumerate(keys):
            value = await self._value_of(key, starts[place], facts[2 * place], facts[2 * place + 1])
            if value is not None and self._index.add(value):
                self.values += 1
                self._metrics.rebuilt_values.inc()

    async def _value_of(self, key: str, start: object, length: object, ttl: object) -> StoredValue | None:
        """Reads one value's head; None for what is none of ours, truncated, or gone by now."""
        namespace = namespace_of(key)
        if namespace is None or not isinstance(start, bytes) or not isinstance(length, int) or not isinstance(ttl, int):
            return None
        try:
            part = await self._index_part(key, start)
        except MalformedValue:
            return None
        if part is None or part.value_key != key or part.value_bytes != length or ttl < -1:
            return None
        expires_at = float("inf") if ttl == -1 else time.monotonic() + ttl / 1000
        return StoredValue(key, namespace, part.block_keys, part.payload_bytes, expires_at)

    async def _index_part(self, key: str, start: bytes) -> IndexPart | None:
        if len(start) < FIXED_BYTES:
            return None
        needed = index_part_bytes(start)
        if needed > len(start):
            (whole,) = await self._redis.ask([("GETRANGE", key, 0, needed - 1)], _BATCH_BUDGET_SECONDS)
            if not isinstance(whole, bytes):
                return None
            start = whole
        return decode_index_part(start)


def _scan_reply(reply: object) -> tuple[str, list[str]]:
    """Reads SCAN's reply; one that makes no sense counts as the end."""
    match reply:
        case [bytes() as cursor, list() as keys]:
            return cursor.decode(), [key.decode(errors="replace") for key in keys if isinstance(key, bytes)]
    return "0", []


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(keys), _BATCH):
        yield keys[first : first + _BATCH]
