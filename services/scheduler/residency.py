"""A request's place on one runner: its slot, its blocks, and how far its computation has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.block_pool import CachedBlock
    from services.scheduler.request import Request
    from services.scheduler.runner_session import RunnerSession


@dataclass(slots=True)
class PendingLoad:
    """Blocks that come from the second-level cache before the request may run."""

    first_block: int
    end_block: int
    give_up_at: float | None = None
    """Known once the runner has begun: steps that were planned earlier take as long as they take."""
    outstanding: int = 0
    arrived: set[int] = field(default_factory=set)

    def arrived_end(self) -> int:
        """Returns the end of the part that arrived without a gap."""
        block = self.first_block
        while block in self.arrived:
            block += 1
        return block


@dataclass(slots=True, eq=False)
class Residency:
    """From placement until the end, a preemption or the loss of the runner.

    0 ........ computed ........ planned ........ known_ahead
      KV is there   in sent plans    not yet planned
    """

    request: Request
    session: RunnerSession
    slot: int
    block_ids: list[int]
    end_ids: frozenset[int]
    planned: int
    computed: int
    registered: int
    """Leading blocks whose content the prefix index knows."""
    last_registered: CachedBlock | None
    samples_in_flight: int = 0
    offered: int = 0
    """Leading blocks that the second-level cache has, or was offered."""
    load: PendingLoad | None = None
    loaded_from: int | None = None
    """Tokens that the runner held itself before a load from the second-level cache."""
    is_introduced: bool = False
    """Whether the runner has been told of the slot."""
    is_released: bool = False

    @property
    def unplanned(self) -> int:
        """Known tokens, those to be sampled by sent plans included, that no plan computes yet; 0 when all is asked."""
        request = self.request
        if len(request.tokens) + self.samples_in_flight >= request.spec.total_tokens:
            return 0
        return len(request.tokens) + self.samples_in_flight - self.planned
