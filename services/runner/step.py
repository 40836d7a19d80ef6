"""One step as the engine sees it: what to compute, and what came out. Plain values, no protobuf."""

import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a sequence draws its tokens; None is off."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0
    choice: int = 0
    min_tokens: int = 0
    end_token_ids: tuple[int, ...] = ()
    """Not drawn before min_tokens."""

    @property
    def is_greedy(self) -> bool:
        """Tells whether the likeliest token is taken without a draw."""
        return self.temperature == 0 or self.top_p == 0 or self.top_k == 1


@dataclass(frozen=True, slots=True)
class NewSequence:
    """A sequence that takes a slot."""

    slot: int
    request_id: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    """How many of token_ids are the prompt's; the others were sampled before, here or elsewhere."""
    computed_tokens: int
    """Leading tokens whose KV the blocks already hold."""
    block_ids: tuple[int, ...]
    sampling: Sampling
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class SequenceWork:
    """What one step computes of one sequence."""

    slot: int
    tokens: int
    new_block_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What the engine does next."""

    step: int
    finished_slots: tuple[int, ...] = ()
    new_sequences: tuple[NewSequence, ...] = ()
    work: tuple[SequenceWork, ...] = ()


class FailureReason(enum.Enum):
    """Why a sequence cannot go on."""

    NAN_LOGITS = "NAN_LOGITS"
    NO_CANDIDATE = "NO_CANDIDATE"


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of one sequence; its neighbours go on."""

    slot: int
    reason: FailureReason
    message: str


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where a step's time went."""

    started_unix_nanoseconds: int
    prepare_nanoseconds: int = 0
    forward_nanoseconds: int = 0
    sample_nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step gave."""

    step: int
    times: StepTimes
    batch_sequences: int = 0
    batch_tokens: int = 0
    token_ids: dict[int, int] = field(default_factory=dict)
    """Slot to sampled token."""
    failures: tuple[Failure, ...] = ()


class PlanError(Exception):
    """A plan contradicts what the engine holds: scheduler and runner disagree, so the attachment must end."""
