"""One runner's loop: plan a step, send it, settle what the runner answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from services.scheduler.batch import BatchPlanner, begin_prefill
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.runner_session import RunnerSession
from services.scheduler.second_level_order import PublishRange, note_load_ended
from services.scheduler.settle import settle_step
from services.scheduler.step_plan import Plan, StepOutcome
from services.scheduler.transfers import LoadOrder, PublishOrder, TransferOutcome, TransferReport

Send = Callable[[Plan], Awaitable[None]]


class Publisher(Protocol):
    """Where computed blocks are offered for the second level."""

    def offer(self, session: RunnerSession, offered: PublishRange) -> None:
        """Takes over pinned blocks."""

    def settle(self, order: PublishOrder, report: TransferReport) -> None:
        """Hears how a publish ended."""

    def forget(self, keys: Iterable[bytes]) -> None:
        """Hears which blocks turned out not to be stored."""


@dataclass(frozen=True, slots=True)
class LoopSurroundings:
    """What a loop tells and asks beside its runner."""

    publisher: Publisher
    metrics: SchedulerMetrics
    clock: Callable[[], float] = time.monotonic


class StepLoop:
    """Runs one runner for as long as it is attached."""

    def __init__(
        self,
        session: RunnerSession,
        planner: BatchPlanner,
        send: Send,
        around: LoopSurroundings,
    ) -> None:
        self._session = session
        self._planner = planner
        self._send = send
        self._publisher = around.publisher
        self._metrics = around.metrics
        self._clock = around.clock

    async def run(self) -> None:
        """Plans as far ahead as allowed, sends, and settles what comes back, until the runner is gone."""
        while not self._session.is_closed:
            for answer in self._session.take_answers():
                self.settle(answer)
            plan = self.plan()
            if plan is not None:
                await self._send(plan)
            else:
                await self.news()

    def plan(self) -> Plan | None:
        """Returns the next step, if the runner may have one and there is something to do."""
        if not self._session.may_plan:
            return None
        now = self._clock()
        plan = self._planner.plan(now)
        self._metrics.note_preempted(self._planner.preempted)
        if plan is not None:
            self._session.note_sent(plan, now)
            self._metrics.note_planned(plan, self._clock() - now)
        return plan

    async def news(self) -> None:
        """Waits for an answer, a new request, or an end."""
        await self._session.news.wait()
        self._session.news.clear()

    def settle(self, answer: StepOutcome | TransferReport) -> None:
        """Applies one answer of the runner."""
        now = self._clock()
        if isinstance(answer, TransferReport):
            self._settle_transfer(answer, now)
            return
        self._session.device_utilization = answer.device_utilization
        settled = settle_step(self._session, answer, now)
        for offered in settled.publishes:
            self._publisher.offer(self._session, offered)
        self._metrics.note_settled(settled, answer, now)

    def _settle_transfer(self, report: TransferReport, now: float) -> None:
        order = self._session.transfers.end(report.transfer_id)
        self._metrics.note_transfer(order, report)
        if isinstance(order, LoadOrder):
            if report.outcome is not TransferOutcome.DONE:
                self._publisher.forget(block.key for block in order.blocks)
            if note_load_ended(self._session, order, report):
                begin_prefill(order.residency, now)
        elif isinstance(order, PublishOrder):
            self._publisher.settle(order, report)
