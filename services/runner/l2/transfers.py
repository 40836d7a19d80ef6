"""Moves blocks between the pool and Redis on threads of their own, so that no step ever waits for Redis."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread

import structlog
from opentelemetry.trace import INVALID_SPAN, Span

from services.common.breaker import BreakerSettings
from services.common.tracing import context_from_traceparent, mark_failed, tracer
from services.runner.l2.gate import Admission, GateClosed, RedisGate
from services.runner.l2.order_queue import OrderQueue, Pending, QueueClosed
from services.runner.l2.orders import (
    BlockPool,
    Done,
    L2Config,
    L2Counters,
    LayoutIdentity,
    LoadOrder,
    Outcome,
    PublishOrder,
    TransferReport,
)
from services.runner.l2.redis_url import parse_redis_url
from services.runner.l2.resp_client import RedisRefused, RedisTimeout, RedisUnavailable
from services.runner.l2.tally import Tally
from services.runner.l2.value_format import CorruptValue
from services.runner.l2.value_mover import MissingValue, ValueMover, ValueTooLarge

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _End:
    outcome: Outcome
    payload_bytes: int = 0
    message: str = ""


class L2Transfers:
    """Takes orders from the model's thread, never blocks it, and reports each order's end exactly once."""

    def __init__(self, config: L2Config, pool: BlockPool, identity: LayoutIdentity) -> None:
        self._config = config
        self._pool = pool
        self._identity = identity
        self._target = parse_redis_url(config.redis_url)
        settings = BreakerSettings(
            config.breaker_failures, config.breaker_open_seconds, config.breaker_open_max_seconds
        )
        self._gate = RedisGate(settings, self._target.name)
        self._tally = Tally()
        self._queue = OrderQueue(config.max_waiting_publishes, max(1, config.threads - 1))
        self._threads = [Thread(target=self._work, name=f"l2-{n}", daemon=True) for n in range(config.threads)]
        for thread in self._threads:
            thread.start()

    def submit_load(self, order: LoadOrder, done: Done) -> None:
        """Queues a load; loads go before publishes."""
        self._submit(order, done)

    def submit_publish(self, order: PublishOrder, done: Done) -> None:
        """Queues a publish; an outcome other than DONE only costs a later hit."""
        self._submit(order, done)

    def counters(self) -> L2Counters:
        """Returns a snapshot for metrics."""
        return self._tally.snapshot(self._gate, len(self._queue))

    def close(self) -> None:
        """Ends the threads; orders that have not begun are reported as UNAVAILABLE, running ones finish first."""
        for pending in self._queue.close():
            self._report(pending, _End(Outcome.UNAVAILABLE, message="the runner is shutting down"), 0)
        for thread in self._threads:
            thread.join()

    def _submit(self, order: LoadOrder | PublishOrder, done: Done) -> None:
        pending = Pending(order, done, time.monotonic())
        if not self._queue.put(pending):
            self._report(pending, _End(Outcome.UNAVAILABLE, message="too many publishes wait, or shutting down"), 0)

    def _work(self) -> None:
        mover = ValueMover(self._config, self._target, self._pool, self._identity)
        try:
            while True:
                pending = self._queue.take(self._gate.reach.seconds_until_probe)
                if pending is None:
                    self._probe(mover)
                else:
                    self._carry_out(mover, pending)
        except QueueClosed:
            mover.close()

    def _carry_out(self, mover: ValueMover, pending: Pending) -> None:
        started = time.monotonic_ns()
        end = _End(Outcome.UNAVAILABLE, message="a bug in the transfer; see the runner's log")
        try:
            with _span(pending.order) as span:
                end = self._attempt(mover, pending)
                _describe(span, pending.order, end)
        except Exception:
            # The edge of one unit of work: the thread goes on to serve the others, and the bug is in the log.
            log.exception("a transfer failed in an unexpected way", value_key=pending.order.value_key)
        finally:
            self._queue.finish(pending)
            self._report(pending, end, time.monotonic_ns() - started)

    def _attempt(self, mover: ValueMover, pending: Pending) -> _End:
        order, now = pending.order, time.monotonic()
        if now >= pending.submitted_at + self._patience_seconds(order):
            return _End(Outcome.TIMEOUT, message="waited too long behind other transfers")
        try:
            admission = self._gate.admit(stores=isinstance(order, PublishOrder))
        except GateClosed as closed:
            return _End(Outcome.UNAVAILABLE, message=str(closed))
        try:
            if isinstance(order, LoadOrder):
                payload_bytes = mover.load(order, pending.submitted_at + order.timeout_seconds)
            else:
                payload_bytes = mover.publish(order, now + self._config.publish_timeout_seconds)
        except (MissingValue, CorruptValue, ValueTooLarge, RedisUnavailable, RedisRefused) as error:
            return self._failed_end(order, admission, error)
        self._gate.answered(admission)
        return _End(Outcome.DONE, payload_bytes)

    def _failed_end(self, order: LoadOrder | PublishOrder, admission: Admission, error: Exception) -> _End:
        """Names the outcome and tells the gate what it says about Redis."""
        match error:
            case MissingValue():
                self._gate.answered(admission)
                return _End(Outcome.MISS)
            case CorruptValue():
                self._gate.answered(admission)
                log.warning("an L2 value did not verify and was deleted", value_key=order.value_key, error=str(error))
                return _End(Outcome.CORRUPT, message=str(error))
            case RedisRefused() if isinstance(order, PublishOrder):
                self._gate.refused_to_store(admission, error)
                return _End(Outcome.UNAVAILABLE, message=str(error))
            case RedisTimeout():
                self._gate.failed(admission, error)
                return _End(Outcome.TIMEOUT, message=str(error))
            case RedisUnavailable() | RedisRefused():
                self._gate.failed(admission, error)
                return _End(Outcome.UNAVAILABLE, message=str(error))
            case _:  # a publish larger than the staging buffer
                self._gate.given_up(admission)
                return _End(Outcome.UNAVAILABLE, message=str(error))

    def _patience_seconds(self, order: LoadOrder | PublishOrder) -> float:
        return order.timeout_seconds if isinstance(order, LoadOrder) else self._config.publish_wait_seconds

    def _probe(self, mover: ValueMover) -> None:
        """Asks a lost Redis whether it is back, so that no transfer has to find out."""
        permit = self._gate.probe()
        if permit is None:
            return
        try:
            mover.ping(time.monotonic() + self._config.connect_timeout_seconds)
        except (RedisUnavailable, RedisRefused):
            self._gate.reach.failed(permit)
        else:
            self._gate.probe_answered(permit)

    def _report(self, pending: Pending, end: _End, duration_nanoseconds: int) -> None:
        report = TransferReport(
            pending.order.transfer_id, end.outcome, end.payload_bytes, duration_nanoseconds, end.message
        )
        self._tally.add(pending.order, report)
        pending.done(report)


@contextmanager
def _span(order: LoadOrder | PublishOrder) -> Iterator[Span]:
    """Opens the transfer's span in its request's trace; without a trace there is none."""
    if not order.traceparent:
        yield INVALID_SPAN
        return
    name = "runner.kv.load" if isinstance(order, LoadOrder) else "runner.kv.publish"
    span = tracer().start_span(name, context_from_traceparent(order.traceparent))
    try:
        yield span
    finally:
        span.end()


def _describe(span: Span, order: LoadOrder | PublishOrder, end: _End) -> None:
    if isinstance(order, LoadOrder):
        span.set_attribute("headrace.request_id", order.request_id)
    span.set_attribute("headrace.kv.outcome", end.outcome.name)
    span.set_attribute("headrace.kv.blocks", len(order.blocks))
    span.set_attribute("headrace.kv.bytes", end.payload_bytes)
    if end.outcome not in (Outcome.DONE, Outcome.MISS):
        mark_failed(span, end.outcome.name, end.message)
