"""What the scheduler asks of a runner in one step, and what the runner answers: values without a wire format."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.scheduler.residency import Residency
from services.scheduler.transfers import LoadOrder, PublishOrder


@dataclass(frozen=True, slots=True)
class Introduction:
    """A sequence that the runner hears of for the first time."""

    residency: Residency
    token_ids: list[int]
    computed_tokens: int
    block_ids: list[int]


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What a step computes of one sequence."""

    residency: Residency
    tokens: int
    end: int
    """Tokens whose KV is there after this step."""
    is_sampling: bool
    new_block_ids: list[int]


@dataclass(slots=True)
class Plan:
    """One step of one runner."""

    step: int
    finished_slots: list[int] = field(default_factory=list)
    introductions: list[Introduction] = field(default_factory=list)
    work: list[WorkItem] = field(default_factory=list)
    loads: list[LoadOrder] = field(default_factory=list)
    publishes: list[PublishOrder] = field(default_factory=list)
    sent_at: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell the runner."""
        return not (self.work or self.finished_slots or self.loads or self.publishes)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sequence that the runner could not go on with."""

    slot: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The runner's answer to one plan."""

    step: int
    slots: list[int]
    token_ids: list[int]
    failures: list[Failure]
    compute_seconds: float | None
    device_utilization: float | None
