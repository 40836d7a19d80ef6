"""What one step of one runner computes: running requests first, then waiting ones, within tokens, slots and blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.scheduler.placement import is_match
from services.scheduler.request import Phase, Request
from services.scheduler.residency import Residency
from services.scheduler.runner_session import RunnerSession
from services.scheduler.second_level_order import is_fetched_for_another, loadable_blocks, order_loads
from services.scheduler.stage_clock import Stage
from services.scheduler.step_plan import Introduction, Plan, WorkItem
from services.scheduler.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What planning needs to know beside one runner's state."""

    load_seconds: float
    is_elsewhere: Callable[[RunnerSession, Request], bool]
    """Whether another runner is the better place, and has room."""
    wake_others: Callable[[RunnerSession], None]
    """Lets the other runners' loops look at the queue."""


class BatchPlanner:
    """Plans the steps of one runner."""

    def __init__(self, session: RunnerSession, queue: WaitingQueue, rules: BatchRules) -> None:
        self._session = session
        self._queue = queue
        self._rules = rules
        self._plan = session.open_plan()
        self._budget = 0
        self._admitted = 0
        self.preempted: list[Request] = []

    def plan(self, now: float) -> Plan | None:
        """Returns the next step, or None when there is nothing to tell the runner."""
        session = self._session
        self._plan = plan = session.open_plan()
        self._budget = session.identity.step_tokens
        self._admitted = 0
        self.preempted = []
        if session.is_draining:
            self._plan_running(now)
        else:
            self._make_room_for_urgent(now)
            self._plan_running(now)
            self._admit(now)
        if self._queue and (self._admitted or self.preempted):
            # What was left to this runner may be theirs now. A loop that changes nothing wakes nobody.
            self._rules.wake_others(session)
        plan.loads, plan.publishes = session.transfers.start_all()
        plan.finished_slots, session.finished_slots = session.finished_slots, []
        return None if plan.is_empty else plan

    def _plan_running(self, now: float) -> None:
        prefills = []
        # Ordered by rank, and victims are taken from the end: nobody is preempted after work of theirs is planned.
        for residency in list(self._session.running):
            if self._budget == 0:
                return
            if residency.is_released or residency.load is not None:
                continue
            unplanned = residency.unplanned
            if unplanned == 1:
                self._plan_decode(residency, now)
            elif unplanned > 1:
                prefills.append(residency)
        for residency in prefills:
            if self._budget == 0:
                return
            if not residency.is_released:
                self._add_work(residency, [])

    def _plan_decode(self, residency: Residency, now: float) -> None:
        session = self._session
        new_block_ids: list[int] = []
        if residency.planned >= len(residency.block_ids) * session.pool.block_tokens:
            allocated = session.pool.allocate(1)
            while allocated is None:
                victim = session.running[-1]
                self._preempt(victim, now)
                if victim is residency:
                    return
                allocated = session.pool.allocate(1)
            new_block_ids = allocated
            residency.block_ids.extend(new_block_ids)
        self._add_work(residency, new_block_ids)

    def _add_work(self, residency: Residency, new_block_ids: list[int]) -> None:
        if not residency.is_introduced:
            self._plan.introductions.append(
                Introduction(residency, list(residency.request.tokens), residency.planned, list(residency.block_ids))
            )
            residency.is_introduced = True
            new_block_ids = []
        unplanned = residency.unplanned
        tokens = min(unplanned, self._budget)
        is_sampling = tokens == unplanned
        residency.planned += tokens
        residency.samples_in_flight += is_sampling
        self._budget -= tokens
        self._plan.work.append(WorkItem(residency, tokens, residency.planned, is_sampling, new_block_ids))

    def _preempt(self, residency: Residency, now: float) -> None:
        request = residency.request
        self._session.release(residency)
        request.preemptions += 1
        request.phase = Phase.PREEMPTED
        request.clock.enter(Stage.QUEUE, now, "PREEMPTED")
        self._queue.add(request)
        self.preempted.append(request)

    def _admit(self, now: float) -> None:
        session, queue, position = self._session, self._queue, 0
        while self._budget > 0 and session.has_free_slot and position < len(queue):
            request = queue[position]
            if not is_match(request.spec, session.identity) or self._rules.is_elsewhere(session, request):
                position += 1
                continue
            offer = session.offer(request)
            if offer is None:
                # Later ones wait too, or a long request would never find room.
                return
            if is_fetched_for_another(session, request, offer):
                position += 1
                continue
            queue.remove(request)
            self._admitted += 1
            self._start(request, session.place(request, offer), now)

    def _start(self, request: Request, residency: Residency, now: float) -> None:
        session = self._session
        model = session.identity.model
        request.served_by = request.served_by or (model.name, model.version, session.identity.runner_id)
        request.clock.load = session.load_note()
        stored_end = loadable_blocks(session, request)
        if stored_end * session.pool.block_tokens > residency.planned:
            order_loads(session, residency, stored_end, self._rules.load_seconds)
            request.phase = Phase.LOADING
            request.clock.enter(Stage.KV_LOAD, now)
            return
        begin_prefill(residency, now)
        self._add_work(residency, [])

    def _make_room_for_urgent(self, now: float) -> None:
        """Preempts requests of strictly lower priority where a more urgent one would have to wait for them."""
        session, queue = self._session, self._queue
        if not queue or not session.running or session.running[-1].request.spec.priority <= queue[0].spec.priority:
            return
        urgent = next((request for request in queue if is_match(request.spec, session.identity)), None)
        if urgent is None or self._rules.is_elsewhere(session, urgent):
            return
        lower = [item for item in session.running if item.request.spec.priority > urgent.spec.priority]
        reclaimable = session.pool.available + sum(len(item.block_ids) for item in lower)
        if not lower or reclaimable < session.blocks_for(len(urgent.tokens)):
            return
        while lower and session.offer(urgent) is None:
            self._preempt(lower.pop(), now)


def begin_prefill(residency: Residency, now: float) -> None:
    """Counts what the caches saved and what has to be computed again, and enters PREFILL."""
    request = residency.request
    prompt_tokens = len(request.spec.prompt)
    if request.starts == 0:
        loaded_from = residency.loaded_from if residency.loaded_from is not None else residency.computed
        request.cached_tokens_l1 = min(loaded_from, prompt_tokens)
        request.cached_tokens_l2 = residency.computed - loaded_from
    request.starts += 1
    request.recomputed_tokens += max(request.once_computed - residency.computed, 0)
    request.phase = Phase.PREFILL
    request.clock.enter(Stage.PREFILL, now)
