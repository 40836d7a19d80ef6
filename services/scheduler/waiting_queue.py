"""Requests that wait for a runner, in the order in which they may start."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from services.scheduler.request import Request


def _rank(request: Request) -> tuple[int, int]:
    return request.rank


class WaitingQueue:
    """A list ordered by rank: a preempted request comes back to its own place, not to the end."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __getitem__(self, position: int) -> Request:
        return self._requests[position]

    def add(self, request: Request) -> None:
        """Puts a request in its place."""
        insort(self._requests, request, key=_rank)

    def remove(self, request: Request) -> bool:
        """Takes a request out; tells whether it was there."""
        position = bisect_left(self._requests, request.rank, key=_rank)
        if position < len(self._requests) and self._requests[position] is request:
            del self._requests[position]
            return True
        return False

    def lengths(self) -> dict[int, int]:
        """Counts the waiting requests of each priority."""
        counts: dict[int, int] = {}
        for request in list(self._requests):
            counts[request.spec.priority] = counts.get(request.spec.priority, 0) + 1
        return counts
