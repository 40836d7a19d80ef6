"""One request as the scheduler sees it, from its submission to its finish reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from services.scheduler.outbox import Outbox
from services.scheduler.stage_clock import StageClock

if TYPE_CHECKING:
    from services.common.errors import ServiceError
    from services.scheduler.block_keys import KeyChain
    from services.scheduler.residency import Residency
    from services.scheduler.stored_prefix import StoredPrefix


class Phase(Enum):
    """Where a request is: QUEUED → (LOADING) → PREFILL → DECODE → DONE, with PREEMPTED → QUEUED's place."""

    QUEUED = auto()
    LOADING = auto()
    PREFILL = auto()
    DECODE = auto()
    PREEMPTED = auto()
    DONE = auto()


class FinishReason(Enum):
    """Why a request is DONE."""

    STOP = auto()
    LENGTH = auto()
    CANCELLED = auto()
    DEADLINE = auto()
    ERROR = auto()


class CachePolicy(Enum):
    """What a request may do with cached prefixes."""

    READ_WRITE = auto()
    READ_ONLY = auto()
    BYPASS = auto()

    @property
    def is_reading(self) -> bool:
        """Whether cached blocks may be used."""
        return self is not CachePolicy.BYPASS

    @property
    def is_leaving(self) -> bool:
        """Whether computed blocks may be found by others."""
        return self is CachePolicy.READ_WRITE


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What was asked for: never changes."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int = 0
    sampling: bytes = b""
    """Serialized SamplingParams: only the runner reads them."""
    model: str = ""
    model_version: str = ""
    tokenizer_digest: str = ""
    tenant_namespace: str = ""
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    choices: int = 1
    priority: int = 4
    do_not_queue: bool = False
    cache_policy: CachePolicy = CachePolicy.READ_WRITE
    traceparent: str = ""
    highest_token_id: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "highest_token_id", max((*self.prompt, *self.stop_token_ids), default=0))

    @property
    def total_tokens(self) -> int:
        """The most tokens that prompt and output can come to."""
        return len(self.prompt) + self.max_tokens


@dataclass(slots=True)
class Request:
    """The state of one request."""

    spec: RequestSpec
    arrival: int
    clock: StageClock
    tokens: list[int]
    """The prompt and every token that was sampled and accepted."""
    outbox: Outbox = field(default_factory=Outbox)
    phase: Phase = Phase.QUEUED
    finish: FinishReason | None = None
    error: ServiceError | None = None
    residency: Residency | None = None
    """Its place on a runner, while it has one."""
    served_by: tuple[str, str, str] | None = None
    """Model, version and runner that first took it."""
    key_chain: KeyChain | None = None
    stored: StoredPrefix | None = None
    """What the second-level cache holds of its prompt."""
    is_looked_up: bool = False
    """Whether the second-level cache was asked."""
    once_computed: int = 0
    """Leading tokens that an earlier residency had computed."""
    starts: int = 0
    preemptions: int = 0
    lost_runners: int = 0
    cached_tokens_l1: int = 0
    cached_tokens_l2: int = 0
    recomputed_tokens: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in every order: urgent ones first, then early ones; a preemption does not change it."""
        return (self.spec.priority, self.arrival)

    @property
    def output_tokens(self) -> int:
        """How many tokens were sampled and accepted."""
        return len(self.tokens) - len(self.spec.prompt)

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return self.phase is Phase.DONE
