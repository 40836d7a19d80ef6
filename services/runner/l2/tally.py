"""Counts what the transfers do."""

from threading import Lock

from services.runner.l2.gate import RedisGate
from services.runner.l2.orders import L2Counters, LoadOrder, Outcome, PublishOrder, TransferReport


class Tally:
    """Sums over all threads since the start."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loads = {outcome.name: 0 for outcome in Outcome}
        self._publishes = {outcome.name: 0 for outcome in Outcome}
        self._loaded_bytes = 0
        self._published_bytes = 0
        self._load_nanoseconds = 0
        self._publish_nanoseconds = 0

    def add(self, order: LoadOrder | PublishOrder, report: TransferReport) -> None:
        """Counts one transfer's end."""
        name = report.outcome.name
        with self._lock:
            if isinstance(order, LoadOrder):
                self._loads[name] += 1
                self._loaded_bytes += report.payload_bytes
                self._load_nanoseconds += report.duration_nanoseconds
            else:
                self._publishes[name] += 1
                self._published_bytes += report.payload_bytes
                self._publish_nanoseconds += report.duration_nanoseconds

    def snapshot(self, gate: RedisGate, waiting: int) -> L2Counters:
        """Returns the sums, with the state of the gate and of the queue."""
        with self._lock:
            return L2Counters(
                loads=dict(self._loads),
                publishes=dict(self._publishes),
                loaded_bytes=self._loaded_bytes,
                published_bytes=self._published_bytes,
                load_seconds=self._load_nanoseconds / 1e9,
                publish_seconds=self._publish_nanoseconds / 1e9,
                corrupt_values=self._loads[Outcome.CORRUPT.name],
                is_breaker_open=gate.reach.is_open,
                breaker_openings=gate.reach.openings,
                is_store_paused=gate.store.is_open,
                waiting=waiting,
            )
