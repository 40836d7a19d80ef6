"""Compares the index with Redis, a little at a time, so that evicted, expired and flushed values leave it."""

import asyncio
from collections import deque

from services.kvstore.index import BlockIndex
from services.kvstore.metrics import KvStoreMetrics
from services.kvstore.redis_index import RedisAway, RedisIndex

_PAUSE_SECONDS = 0.5
_BATCH = 100


class Sweep:
    """Goes through all values again and again, at a bounded rate."""

    def __init__(self, redis: RedisIndex, index: BlockIndex, metrics: KvStoreMetrics, values_per_second: int) -> None:
        self._redis = redis
        self._index = index
        self._metrics = metrics
        self._batch = max(1, min(_BATCH, round(values_per_second * _PAUSE_SECONDS)))
        self._pause_seconds = self._batch / values_per_second
        self._to_check: deque[str] = deque()

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            await self._redis.wait_answering()
            try:
                await self.step()
            except RedisAway:
                continue

    async def step(self) -> None:
        """Checks the next few values."""
        if not self._to_check:
            self._to_check.extend(self._index.value_keys())
        batch = [self._to_check.popleft() for _ in range(min(self._batch, len(self._to_check)))]
        known = [key for key in batch if self._index.has_value(key)]
        gone = {key for key in known if self._index.has_expired(key)}
        left = [key for key in known if key not in gone]
        if left:
            gone |= await self._redis.find_missing(left, counts_as_use=False)
        for key in gone:
            if self._index.remove(key):
                self._metrics.vanished_values.inc()
