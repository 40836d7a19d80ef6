"""Stops asking a dependency that does not answer, and finds out by single probes when it does again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """How soon a breaker opens and how long it stays so."""

    failures: int = 3
    """Failures in a row that open it."""
    open_seconds: float = 1.0
    """From the first opening to the first probe; each failed probe doubles it."""
    open_max_seconds: float = 15.0
    probe_seconds: float = 5.0
    """A probe that has not ended by then is given up, and another one may start."""


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to make one call, to be answered with succeeded, failed or abandoned."""

    generation: int


class Breaker:
    """Closed: calls pass. Open: none does, save one probe at a time when it is due. Safe to share between threads."""

    def __init__(self, settings: BreakerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = Lock()
        # Raised by every change of phase, so that the late end of an older call changes nothing.
        self._generation = 0
        self._failures = 0
        self._wait_seconds = settings.open_seconds
        self._probe_due: float | None = None
        self._openings = 0

    @property
    def is_open(self) -> bool:
        """Tells whether calls are refused now."""
        return self._probe_due is not None

    @property
    def openings(self) -> int:
        """Counts how often it went from closed to open."""
        return self._openings

    def permit(self) -> Permit | None:
        """Admits an ordinary call, or returns None while open."""
        with self._lock:
            return Permit(self._generation) if self._probe_due is None else None

    def probe(self) -> Permit | None:
        """Admits the one call that finds out whether an open breaker may close; None when it is not due."""
        with self._lock:
            now = self._clock()
            if self._probe_due is None or now < self._probe_due:
                return None
            self._generation += 1
            self._probe_due = now + self._settings.probe_seconds
            return Permit(self._generation)

    def seconds_until_probe(self) -> float | None:
        """Returns how long until a probe is due; None while closed."""
        with self._lock:
            return None if self._probe_due is None else max(0.0, self._probe_due - self._clock())

    def succeeded(self, permit: Permit) -> bool:
        """Notes an answer; True when this closes the breaker."""
        with self._lock:
            if permit.generation != self._generation:
                return False
            was_open, self._probe_due = self._probe_due is not None, None
            self._failures = 0
            if was_open:
                self._generation += 1
                self._wait_seconds = self._settings.open_seconds
            return was_open

    def failed(self, permit: Permit) -> bool:
        """Notes a failure; True when this opens the breaker."""
        with self._lock:
            if permit.generation != self._generation:
                return False
            if self._probe_due is not None:
                self._wait_seconds = min(self._wait_seconds * 2, self._settings.open_max_seconds)
                self._open()
                return False
            self._failures += 1
            if self._failures < self._settings.failures:
                return False
            self._openings += 1
            self._open()
            return True

    def abandoned(self, permit: Permit) -> None:
        """Notes a call that was given up for a reason of the caller's: it says nothing about the dependency."""
        with self._lock:
            if permit.generation == self._generation and self._probe_due is not None:
                self._probe_due = self._clock()

    def _open(self) -> None:
        self._generation += 1
        self._failures = 0
        self._probe_due = self._clock() + self._wait_seconds
