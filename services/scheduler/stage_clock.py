"""Where a request's time goes: one interval per stage, reported when it ends."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """A part of a request's life; the value is the name of its span."""

    KV_LOOKUP = "kv.lookup"
    QUEUE = "queue"
    KV_LOAD = "kv.load"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class RunnerLoadNote:
    """How busy the request's runner was."""

    batch_size: int
    device_utilization: float | None


@dataclass(frozen=True, slots=True)
class EndedStage:
    """One stage from its start to its end, in seconds of the monotonic clock."""

    stage: Stage
    started: float
    ended: float
    load: RunnerLoadNote | None
    failure: str | None
    """UPPER_SNAKE cause where the stage ended without success."""


class StageClock:
    """Times one request's stages; at most one is open."""

    __slots__ = ("_on_end", "_seconds", "_stage", "_started", "first_token_at", "load", "submitted_at")

    def __init__(self, now: float, on_end: Callable[[EndedStage], None]) -> None:
        self.submitted_at = now
        self.first_token_at: float | None = None
        self.load: RunnerLoadNote | None = None
        self._on_end = on_end
        self._stage: Stage | None = None
        self._started = now
        self._seconds: dict[Stage, float] = {}

    def enter(self, stage: Stage, now: float, failure: str | None = None) -> None:
        """Ends the open stage, with the cause if it was cut short, and starts another; the same one goes on."""
        if self._stage is stage:
            return
        self.stop(now, failure)
        self._stage, self._started = stage, now

    def stop(self, now: float, failure: str | None = None) -> None:
        """Ends the open stage, if any."""
        if self._stage is None:
            return
        stage, self._stage = self._stage, None
        self._seconds[stage] = self.seconds(stage) + now - self._started
        self._on_end(EndedStage(stage, self._started, now, self.load, failure))

    def seconds(self, stage: Stage) -> float:
        """Sums the ended intervals of a stage."""
        return self._seconds.get(stage, 0.0)
