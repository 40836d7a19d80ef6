"""Tells how far loading is, as log lines that are few enough to read."""

import time

import structlog

log = structlog.get_logger()

_LEAST_PERCENT = 10
_LEAST_SECONDS = 1.0


class LoadingStopped(Exception):
    """The process is asked to end before the model is loaded."""


class LoadProgress:
    """Reports parts that follow each other as one way from 0 to 100 percent; called from the loading thread."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._percent = 0.0
        self._reported_at = time.monotonic()
        self._reported_percent = 0.0
        self._is_stopped = False

    def stop(self) -> None:
        """Lets the loading thread end at its next report."""
        self._is_stopped = True

    def part(self, start: float, end: float) -> "Part":
        """Returns what a part between two percentages calls with its own 0 to 1."""
        return Part(self, start, end)

    def reach(self, percent: float) -> None:
        """Notes where loading is; raises LoadingStopped if nobody waits for it any more."""
        if self._is_stopped:
            raise LoadingStopped
        now = time.monotonic()
        is_due = now - self._reported_at >= _LEAST_SECONDS and percent - self._reported_percent >= _LEAST_PERCENT
        if is_due or (percent >= 100 > self._reported_percent):
            self._reported_at, self._reported_percent = now, percent
            log.info("loading the model", stage="LOAD", model=self._model, percent=round(percent))


class Part:
    """One part of the way."""

    def __init__(self, progress: LoadProgress, start: float, end: float) -> None:
        self._progress = progress
        self._start = start
        self._end = end

    def __call__(self, done: float) -> None:
        self._progress.reach(self._start + (self._end - self._start) * done)
