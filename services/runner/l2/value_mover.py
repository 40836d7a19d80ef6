"""Carries out one transfer at a time: a connection to Redis, a staging buffer, and the pool."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from services.runner.l2.orders import BlockPool, L2Config, LayoutIdentity, LoadOrder, PublishOrder
from services.runner.l2.redis_url import RedisTarget
from services.runner.l2.resp_client import Buffer, RedisRefused, RedisTimeout, RedisUnavailable, RespConnection
from services.runner.l2.value_format import CorruptValue, head_of, tag_of, verify_value

T = TypeVar("T")


class MissingValue(Exception):
    """Redis does not hold the value."""


class ValueTooLarge(Exception):
    """A value does not fit the staging buffer's limit."""


class Staging:
    """Memory for one value, kept from transfer to transfer and grown when a larger one comes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._memory = bytearray()

    def view(self, length: int) -> memoryview:
        """Returns writable memory of this length, whose earlier views must not be used any more."""
        if length > self._limit:
            raise ValueTooLarge(f"a value of {length} bytes; at most {self._limit} are taken")
        if length > len(self._memory):
            self._memory = bytearray(length)
        return memoryview(self._memory)[:length]


class ValueMover:
    """Moves values for one thread. Deadlines are instants of time.monotonic()."""

    def __init__(self, config: L2Config, target: RedisTarget, pool: BlockPool, identity: LayoutIdentity) -> None:
        self._connect_timeout_seconds = config.connect_timeout_seconds
        self._target = target
        self._pool = pool
        self._identity = identity
        self._staging = Staging(config.max_value_bytes)
        self._connection: RespConnection | None = None

    def load(self, order: LoadOrder, deadline: float) -> int:
        """Brings a value's blocks into the pool after every byte has verified; returns the payload bytes written."""
        key = order.value_key.encode()
        try:
            value = self._ask(lambda redis: redis.get_into(key, self._staging.view, deadline), deadline)
            if value is None:
                raise MissingValue
            verified = verify_value(value, order, self._identity)
        except (CorruptValue, ValueTooLarge) as error:
            self._delete(key)
            raise CorruptValue(str(error)) from error
        except RedisRefused as error:
            if error.code != "WRONGTYPE":
                raise
            self._delete(key)
            raise CorruptValue("it is not a string") from error
        for block in order.blocks:
            self._pool.write_block(block.block_id, verified.block(block.index))
        return len(order.blocks) * self._identity.block_bytes

    def publish(self, order: PublishOrder, deadline: float) -> int:
        """Writes blocks of the pool as one value; returns the payload bytes read."""
        head = head_of(order, self._identity)
        size = self._identity.block_bytes
        payload = self._staging.view(size * len(order.blocks))
        for block in order.blocks:
            self._pool.read_block(block.block_id, payload[block.index * size : (block.index + 1) * size])
        parts: list[Buffer] = [head, payload, tag_of(order.integrity_key, head, payload)]
        key, expiry = order.value_key.encode(), order.expiry_seconds * 1000
        self._ask(lambda redis: redis.set_value(key, parts, expiry, deadline), deadline)
        return len(payload)

    def ping(self, deadline: float) -> None:
        """Finds out whether Redis answers."""
        self._ask(lambda redis: redis.call(b"PING", deadline=deadline), deadline)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    def _ask(self, question: Callable[[RespConnection], T], deadline: float) -> T:
        """Asks over the open connection; one that broke while it was idle is replaced, once."""
        idle = self._connection
        if idle is not None and not idle.is_closed:
            try:
                return question(idle)
            except RedisTimeout:
                raise
            except RedisUnavailable:
                idle.close()
        now = time.monotonic()
        self._connection = RespConnection(self._target, min(deadline, now + self._connect_timeout_seconds))
        return question(self._connection)

    def _delete(self, key: bytes) -> None:
        """Removes what did not verify; if that fails, the next reader finds it and tries again."""
        deadline = time.monotonic() + self._connect_timeout_seconds
        with suppress(RedisUnavailable, RedisRefused):
            self._ask(lambda redis: redis.call(b"DEL", key, deadline=deadline), deadline)
