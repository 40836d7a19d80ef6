"""The waiting transfers: loads before publishes, and always a thread left for loads."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition

from services.runner.l2.orders import Done, LoadOrder, PublishOrder


@dataclass(frozen=True, slots=True)
class Pending:
    """An order, who waits for its end, and when it was submitted (time.monotonic())."""

    order: LoadOrder | PublishOrder
    done: Done
    submitted_at: float


class QueueClosed(Exception):
    """There will be no more orders."""


class OrderQueue:
    """Hands orders to the transfer threads."""

    def __init__(self, max_waiting_publishes: int, max_running_publishes: int) -> None:
        self._changed = Condition()
        self._loads: deque[Pending] = deque()
        self._publishes: deque[Pending] = deque()
        self._max_waiting_publishes = max_waiting_publishes
        self._max_running_publishes = max_running_publishes
        self._running_publishes = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._loads) + len(self._publishes)

    def put(self, pending: Pending) -> bool:
        """Queues an order; False when the queue is closed, or holds too many publishes to take another one."""
        with self._changed:
            is_load = isinstance(pending.order, LoadOrder)
            if self._is_closed or (not is_load and len(self._publishes) >= self._max_waiting_publishes):
                return False
            (self._loads if is_load else self._publishes).append(pending)
            self._changed.notify()
            return True

    def take(self, patience: Callable[[], float | None]) -> Pending | None:
        """Waits for an order as long as patience says (None: for ever); raises QueueClosed at the end."""
        with self._changed:
            while True:
                if self._is_closed:
                    raise QueueClosed
                if self._loads:
                    return self._loads.popleft()
                if self._publishes and self._running_publishes < self._max_running_publishes:
                    self._running_publishes += 1
                    return self._publishes.popleft()
                if not self._changed.wait(patience()):
                    return None

    def finish(self, pending: Pending) -> None:
        """Notes the end of a taken order, which may let the next publish begin."""
        if isinstance(pending.order, PublishOrder):
            with self._changed:
                self._running_publishes -= 1
                self._changed.notify()

    def close(self) -> list[Pending]:
        """Wakes every taker to end; returns what had not begun."""
        with self._changed:
            self._is_closed = True
            rest = [*self._loads, *self._publishes]
            self._loads.clear()
            self._publishes.clear()
            self._changed.notify_all()
            return rest
