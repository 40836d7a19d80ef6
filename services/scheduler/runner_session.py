"""One attached runner: its pool, its slots, who runs there, and the plans that it has not answered."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from dataclasses import dataclass

from services.scheduler.block_keys import Digest, KeyChain, sha256, usable_blocks
from services.scheduler.block_pool import BlockPool, CachedBlock
from services.scheduler.request import Request
from services.scheduler.residency import Residency
from services.scheduler.runner_identity import RunnerIdentity
from services.scheduler.stage_clock import RunnerLoadNote
from services.scheduler.step_plan import Plan, StepOutcome
from services.scheduler.transfers import TransferReport, Transfers

MAX_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class Offer:
    """How a request could be placed on a runner now."""

    matched: list[CachedBlock]
    fresh_blocks: int


def _rank(residency: Residency) -> tuple[int, int]:
    return residency.request.rank


class RunnerSession:
    """From a runner's hello until its stream ends; a later attachment of the same runner is another session."""

    def __init__(self, identity: RunnerIdentity, epoch: int, run_ahead: int, digest: Digest = sha256) -> None:
        self.identity = identity
        self.epoch = epoch
        self.pool = BlockPool(identity.kv.block_count, identity.kv.block_tokens)
        self.transfers = Transfers(self.pool)
        self.running: list[Residency] = []
        self.in_flight: deque[Plan] = deque()
        self.finished_slots: list[int] = []
        self.news = asyncio.Event()
        self.answers: list[StepOutcome | TransferReport] = []
        self.close_cause: str | None = None
        self.is_draining = False
        self.last_heard = 0.0
        self.device_utilization: float | None = None
        # A step that cannot give every running sequence a token would starve the last ones.
        self._free_slots = list(range(min(identity.sequence_slots, identity.step_tokens) - 1, -1, -1))
        self._run_ahead = run_ahead
        self._digest = digest
        self._next_step = 1

    @property
    def is_closed(self) -> bool:
        """Whether the runner is gone or replaced."""
        return self.close_cause is not None

    def close(self, cause: str) -> None:
        """Fences the runner: nothing that it says counts any more."""
        self.close_cause = self.close_cause or cause
        self.news.set()

    def drain(self) -> None:
        """Hears that the runner wants to leave: what it has goes on, nothing new starts there."""
        self.is_draining = True

    @property
    def may_plan(self) -> bool:
        """Whether the runner may get another plan."""
        return not self.is_closed and len(self.in_flight) < self._run_ahead

    def open_plan(self) -> Plan:
        """Starts the next plan; the number is used up only when the plan is sent."""
        return Plan(self._next_step)

    def note_sent(self, plan: Plan, now: float) -> None:
        """Counts a plan as unanswered."""
        plan.sent_at = now
        self._next_step += 1
        self.in_flight.append(plan)

    @property
    def has_free_slot(self) -> bool:
        """Whether one more sequence can run."""
        return bool(self._free_slots)

    def hear(self, answer: StepOutcome | TransferReport) -> None:
        """Keeps a runner's answer until the loop settles it."""
        self.answers.append(answer)
        self.news.set()

    def take_answers(self) -> list[StepOutcome | TransferReport]:
        """Returns the answers since the last time, in order."""
        answers, self.answers = self.answers, []
        return answers

    def load_note(self) -> RunnerLoadNote:
        """Says how busy the runner is."""
        return RunnerLoadNote(len(self.running), self.device_utilization)

    def pending_tokens(self) -> int:
        """Counts the tokens that running requests still want computed."""
        return sum(residency.unplanned for residency in self.running)

    def blocks_for(self, tokens: int) -> int:
        """Returns how many blocks hold so many tokens."""
        return -(-tokens // self.pool.block_tokens)

    def key_chain(self, request: Request) -> KeyChain:
        """Returns the request's block keys as this runner would compute them."""
        scope = self.identity.key_scope(request.spec.tenant_namespace)
        if request.key_chain is None or request.key_chain.scope != scope:
            request.key_chain = KeyChain(scope, self._digest)
        return request.key_chain

    def match(self, request: Request) -> list[CachedBlock]:
        """Finds the cached blocks that the request may use."""
        if not request.spec.cache_policy.is_reading:
            return []
        limit = usable_blocks(len(request.tokens), self.pool.block_tokens)
        return self.pool.match(self.key_chain(request).keys(request.tokens, limit), request.tokens, limit)

    def offer(self, request: Request) -> Offer | None:
        """Looks whether all known tokens of the request fit now, beside what the running ones will soon want."""
        if not self._free_slots:
            return None
        matched = self.match(request)
        fresh = self.blocks_for(len(request.tokens)) - len(matched)
        available = self.pool.available - self.pool.count_evictable(matched)
        if available < fresh + self._headroom(request):
            return None
        return Offer(matched, fresh)

    def _headroom(self, request: Request) -> int:
        """Blocks to be left over, so that the newcomer is not the next victim.

        One for each running sequence, and after every preemption twice as much room to grow as before: a request is
        preempted a bounded number of times, however the pool is filled.
        """
        if not self.running:
            return 0
        growth = self.blocks_for(request.spec.total_tokens) - self.blocks_for(len(request.tokens))
        wanted = 2 ** min(request.preemptions, MAX_DOUBLINGS) if request.preemptions else 0
        return len(self.running) + min(growth, wanted)

    def place(self, request: Request, offer: Offer) -> Residency:
        """Gives the request a slot and blocks for all its known tokens; cached ones are held from here on."""
        matched_ids = [content.block_id for content in offer.matched]
        self.pool.take(matched_ids)
        fresh = self.pool.allocate(offer.fresh_blocks)
        assert fresh is not None
        spec, hit = request.spec, len(offer.matched)
        eos = frozenset() if spec.ignore_eos else self.identity.model.eos_token_ids
        residency = Residency(
            request=request,
            session=self,
            slot=self._free_slots.pop(),
            block_ids=matched_ids + fresh,
            end_ids=spec.stop_token_ids | eos,
            planned=hit * self.pool.block_tokens,
            computed=hit * self.pool.block_tokens,
            registered=hit,
            last_registered=offer.matched[-1] if offer.matched else None,
        )
        request.residency = residency
        insort(self.running, residency, key=_rank)
        return residency

    def release(self, residency: Residency) -> None:
        """Takes a request off the runner: its blocks are free at once, because plans are executed in order."""
        assert not residency.is_released
        residency.is_released = True
        residency.request.residency = None
        residency.request.once_computed = max(residency.request.once_computed, residency.computed)
        self.running.remove(residency)
        self.pool.release(residency.block_ids)
        self._free_slots.append(residency.slot)
        if residency.is_introduced:
            self.finished_slots.append(residency.slot)
        self.news.set()

    def register_computed(self, residency: Residency) -> None:
        """Makes the blocks that have become full findable, unless the request leaves no traces."""
        size = self.pool.block_tokens
        full = residency.computed // size
        request = residency.request
        if not request.spec.cache_policy.is_leaving:
            return
        keys = self.key_chain(request).keys(request.tokens, full)
        for block in range(residency.registered, full):
            tokens = tuple(request.tokens[block * size : (block + 1) * size])
            residency.last_registered = self.pool.register(
                residency.block_ids[block], keys[block], tokens, residency.last_registered
            )
        residency.registered = full
