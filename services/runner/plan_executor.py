"""The model's thread: executes plans strictly in order, and hands their transfers over when their turn comes."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch

from services.runner.engine import Engine
from services.runner.l2.orders import Done, LoadOrder, Outcome, PublishOrder, TransferReport
from services.runner.step import StepOutcome
from services.runner.step_messages import Plan

T = TypeVar("T")

Report = Callable[[TransferReport], None]


class Transfers(Protocol):
    """Whatever moves blocks to and from the second-level cache."""

    def submit_load(self, order: LoadOrder, done: Done) -> None:
        """Queues a load."""

    def submit_publish(self, order: PublishOrder, done: Done) -> None:
        """Queues a publish."""


class NoTransfers:
    """A runner without a second-level cache: every transfer ends at once."""

    def submit_load(self, order: LoadOrder, done: Done) -> None:
        """Reports that there is nothing to load from."""
        done(_unavailable(order.transfer_id))

    def submit_publish(self, order: PublishOrder, done: Done) -> None:
        """Reports that there is nowhere to write."""
        done(_unavailable(order.transfer_id))


def _unavailable(transfer_id: int) -> TransferReport:
    return TransferReport(transfer_id, Outcome.UNAVAILABLE, 0, 0, "this runner has no second-level cache")


class Attachment:
    """One epoch's claim on the engine; when it is closed, what it has queued is not executed any more."""

    def __init__(self, epoch: int, report: Report) -> None:
        self.epoch = epoch
        self.report = report
        """Called from any thread at the end of each transfer."""
        self._is_closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """Tells whether the scheduler of this epoch is gone."""
        return self._is_closed.is_set()

    def close(self) -> None:
        """Voids what is queued."""
        self._is_closed.set()


class ModelThread:
    """One thread for everything that touches the model."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(1, "model", lambda: torch.set_num_threads(threads))

    async def run(self, function: Callable[[], T]) -> T:
        """Runs a function behind everything that is queued already."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Queues a function."""
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Drops what is queued and waits for what runs."""
        self._pool.shutdown(cancel_futures=True)


class PlanExecutor:
    """Executes the plans of one attachment at a time."""

    def __init__(self, engine: Engine, transfers: Transfers, thread: ModelThread) -> None:
        self._engine = engine
        self._transfers = transfers
        self._thread = thread
        self._running_transfers = 0
        self._changed = threading.Condition()

    @property
    def sequences(self) -> int:
        """Returns how many slots are taken."""
        return self._engine.sequences

    @property
    def running_transfers(self) -> int:
        """Returns how many transfers have not ended."""
        return self._running_transfers

    def submit(self, plan: Plan, attachment: Attachment) -> asyncio.Future[StepOutcome | None]:
        """Queues a plan; the result is None if its attachment was closed before its turn."""
        return self._thread.submit(lambda: self._execute(plan, attachment))

    async def forget(self) -> None:
        """Waits for the running step and the running transfers, then drops every sequence.

        A transfer that outlived its epoch would write into blocks that the next one gives to somebody else.
        """
        await self._thread.run(self._forget)

    def _execute(self, plan: Plan, attachment: Attachment) -> StepOutcome | None:
        if attachment.is_closed:
            return None
        done = self._expect(len(plan.loads) + len(plan.publishes), attachment.report)
        for load in plan.loads:
            self._transfers.submit_load(load, done)
        outcome = self._engine.execute(plan.order)
        for publish in plan.publishes:
            self._transfers.submit_publish(publish, done)
        return outcome

    def _expect(self, transfers: int, report: Report) -> Report:
        with self._changed:
            self._running_transfers += transfers

        def end(transfer: TransferReport) -> None:
            report(transfer)
            with self._changed:
                self._running_transfers -= 1
                self._changed.notify_all()

        return end

    def _forget(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running_transfers == 0)
        self._engine.reset()
