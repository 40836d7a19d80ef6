"""Which blocks the second-level cache holds, as far as this scheduler has heard lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

MOST_KEYS = 1 << 16
# Redis evicts and expires without a word to us. What is older than this is worth a question to the kvstore.
BELIEVED_SECONDS = 60.0


class StoredKeys:
    """Saves questions about blocks that are stored. It is bounded, and believes nothing for long."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # The latest last, so that the first is the first to be forgotten.
        self._heard: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, key: bytes) -> bool:
        heard = self._heard.get(key)
        return heard is not None and self._clock() - heard < BELIEVED_SECONDS

    def note(self, keys: Iterable[bytes]) -> None:
        """Hears that blocks are stored."""
        now = self._clock()
        for key in keys:
            self._heard[key] = now
            self._heard.move_to_end(key)
        while self._heard and (len(self._heard) > MOST_KEYS or self._is_old(now)):
            self._heard.popitem(last=False)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Hears that blocks are not stored."""
        for key in keys:
            self._heard.pop(key, None)

    def _is_old(self, now: float) -> bool:
        return now - next(iter(self._heard.values())) >= BELIEVED_SECONDS
