"""The scheduler's own parts around scripted engines, stepped by hand: no sockets, no waiting, one order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from scripted_engine import Script, ScriptedEngine, ScriptedStore, counting_script

from headrace.v1 import step_pb2
from services.scheduler.admission import Admission
from services.scheduler.batch import BatchPlanner, BatchRules
from services.scheduler.block_keys import Digest, sha256, usable_blocks
from services.scheduler.config import SchedulerConfig
from services.scheduler.fleet import Fleet
from services.scheduler.loop import LoopSurroundings, StepLoop
from services.scheduler.messages import outcome_from, plan_message, report_from
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.request import FinishReason, Request, RequestSpec
from services.scheduler.runner_identity import KvFacts, ModelFacts, RunnerIdentity
from services.scheduler.runner_session import RunnerSession
from services.scheduler.second_level_order import PublishRange
from services.scheduler.stored_prefix import StoredPrefix, StoredRun
from services.scheduler.transfers import PlacedBlock, PublishOrder, TransferOutcome, TransferReport, ValueRef
from services.scheduler.waiting_queue import WaitingQueue

EOS = 2


def identity(
    runner_id: str = "runner-0",
    *,
    block_tokens: int = 4,
    block_count: int = 64,
    context_length: int = 256,
    step_tokens: int = 64,
    sequence_slots: int = 8,
    has_l2: bool = False,
    model: str = "scripted",
    tokenizer: str = "t",
) -> RunnerIdentity:
    """Describes a small runner."""
    facts = ModelFacts(model, "w", "Scripted", "w", tokenizer, "", context_length, 1000, frozenset({EOS}), "float32")
    kv = KvFacts(block_tokens, block_count, 1024, "float32", "scripted", "none")
    return RunnerIdentity(runner_id, "1", "", facts, kv, step_tokens, sequence_slots, has_l2)


def alone(prompt: Iterable[int], count: int, script: Script = counting_script, request_id: str = "") -> list[int]:
    """Returns what the script says to this prompt when nothing else runs."""
    known = list(prompt)
    first = len(known)
    for _ in range(count):
        known.append(script(request_id, list(known)))
    return known[first:]


@dataclass
class StoringPublisher:
    """Grants what follows the stored blocks as one value, and remembers which block keys are stored."""

    stored: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    forgotten: list[bytes] = field(default_factory=list)
    is_storing: bool = True

    def offer(self, session: RunnerSession, offered: PublishRange) -> None:
        """Orders the write at once."""
        taken = {block.key for order in session.transfers.open_publishes() for block in order.blocks}
        taken.update(self.stored)
        total = len(offered.keys)
        first = next((at for at, key in enumerate(offered.keys) if key not in taken), total)
        if not self.is_storing or first == total:
            session.pool.release(offered.block_ids)
            return
        session.pool.release(offered.block_ids[:first])
        offered = offered.part(first, total)
        number = session.transfers.next_id()
        blocks = tuple(
            PlacedBlock(position, block_id, key)
            for position, (block_id, key) in enumerate(zip(offered.block_ids, offered.keys, strict=True))
        )
        value = ValueRef(f"{session.epoch}-{number}", b"")
        session.transfers.add(PublishOrder(number, number, value, blocks, offered.token_ids, 60, ""))
        session.pool.release(offered.block_ids)

    def settle(self, order: PublishOrder, report: TransferReport) -> None:
        """Makes the value findable."""
        assert report.outcome is TransferOutcome.DONE
        for block in order.blocks:
            self.stored.setdefault(block.key, (order.value.value_key, block.index))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Notes what was not there."""
        for key in keys:
            self.forgotten.append(key)
            self.stored.pop(key, None)


@dataclass
class SimulatedRunner:
    """A session, its loop, and the engine at the other end of the wire."""

    session: RunnerSession
    loop: StepLoop
    engine: ScriptedEngine
    wire: list[step_pb2.StepPlan] = field(default_factory=list)
    holds_transfers: bool = False
    held: list[step_pb2.TransferResult] = field(default_factory=list)

    def plan_ahead(self) -> None:
        """Sends plans until the loop would fall asleep; one that nobody wakes sleeps on, as the real one does."""
        while self.session.news.is_set():
            self.session.news.clear()
            while (plan := self.loop.plan()) is not None:
                self.wire.append(plan_message(plan, self.session.epoch).plan)

    def answer(self) -> bool:
        """Executes the oldest plan on the wire; tells whether there was one."""
        if not self.wire:
            return False
        result, transfers = self.engine.execute(self.wire.pop(0))
        self.session.news.set()
        self.loop.settle(outcome_from(result))
        self.held.extend(transfers)
        if not self.holds_transfers:
            self.deliver_transfers()
        return True

    def deliver_transfers(self) -> None:
        """Reports the transfers that have ended."""
        held, self.held = self.held, []
        for transfer in held:
            self.session.news.set()
            self.loop.settle(report_from(transfer))


class Simulation:
    """One scheduler and its runners."""

    def __init__(
        self,
        *identities: RunnerIdentity,
        run_ahead: int = 2,
        script: Script = counting_script,
        digest: Digest = sha256,
        queue_limit: int = 100,
    ) -> None:
        self.config = SchedulerConfig(run_ahead=run_ahead, kvstore=None, queue_limit=queue_limit)
        self.now = 0.0
        self.queue = WaitingQueue()
        self.metrics = SchedulerMetrics(CollectorRegistry())
        self.fleet = Fleet(self.config, self.queue, self.metrics.note_ended, self.now, digest)
        self.admission = Admission(self.config, self.queue, self.fleet, self.metrics.note_ended)
        self.publisher = StoringPublisher()
        self.store = ScriptedStore()
        self.script = script
        self.runners: list[SimulatedRunner] = []
        self.requests: list[Request] = []
        for item in identities or (identity(),):
            self.attach(item)

    def attach(self, item: RunnerIdentity) -> SimulatedRunner:
        """Lets a runner say hello."""
        session = self.fleet.attach(item, self.now)
        rules = BatchRules(self.config.load_seconds, self.fleet.is_elsewhere, self.fleet.wake_others)
        planner = BatchPlanner(session, self.queue, rules)

        async def never_called(plan: object) -> None:
            raise AssertionError

        around = LoopSurroundings(self.publisher, self.metrics, clock=lambda: self.now)
        loop = StepLoop(session, planner, never_called, around)
        engine = ScriptedEngine(self.script, item.kv.block_tokens, item.kv.block_count, self.store)
        self.runners.append(SimulatedRunner(session, loop, engine))
        return self.runners[-1]

    def lose(self, runner: SimulatedRunner) -> None:
        """Ends a runner's stream."""
        self.runners.remove(runner)
        self.fleet.detach(runner.session, "killed", self.now)

    def submit(self, prompt: Iterable[int], max_tokens: int, **fields: object) -> Request:
        """Lets a request in, as a gateway would."""
        number = len(self.requests)
        spec = RequestSpec(f"r{number}", tuple(prompt), max_tokens, **fields)  # type: ignore[arg-type]
        request = self.admission.admit(spec, lambda ended: None, self.now)
        request.stored = self.look_up(request)
        self.admission.enqueue(request, self.now)
        self.requests.append(request)
        return request

    def look_up(self, request: Request) -> StoredPrefix | None:
        """Finds what the publisher has stored of the prompt."""
        if not self.runners or not request.spec.cache_policy.is_reading:
            return None
        session = self.runners[0].session
        limit = usable_blocks(len(request.tokens), session.pool.block_tokens)
        keys = session.key_chain(request).keys(request.tokens, limit)[:limit]
        runs = []
        for key in keys:
            if key not in self.publisher.stored:
                break
            value_key, index = self.publisher.stored[key]
            runs.append(StoredRun(value_key, index, 1))
        return StoredPrefix(session.key_chain(request).scope, tuple(runs), b"") if runs else None

    def wait(self, seconds: float, *, is_silent: bool = False) -> None:
        """Lets time pass as the scheduler's clock does, in small steps; runners are heard of unless they are silent."""
        ends = self.now + seconds
        while self.now < ends:
            self.now = min(self.now + 0.25, ends)
            for runner in self.runners:
                if not is_silent:
                    runner.session.last_heard = self.now
            self.fleet.tick(self.now)

    def cancel(self, request: Request) -> None:
        """Closes a request's stream."""
        self.admission.end(request, FinishReason.CANCELLED, self.now)

    def step(self) -> bool:
        """Lets every runner plan as far ahead as it may and answer one plan; tells whether anything happened."""
        self.now += 0.001
        for runner in self.runners:
            runner.plan_ahead()
        answered = [runner.answer() for runner in self.runners]
        return any(answered)

    def run(self, until: Callable[[], bool] | None = None, most_steps: int = 5000) -> None:
        """Steps until the condition holds, or nothing is left to do."""
        for _ in range(most_steps):
            if until is not None and until():
                return
            if not self.step():
                assert until is None or until(), "nothing left to do, and the condition does not hold"
                return
        raise AssertionError("no end in sight")

    def check_idle(self) -> None:
        """Asserts that nothing is held by anybody."""
        for runner in self.runners:
            pool = runner.session.pool
            pool.check_integrity()
            assert pool.used == 0
            assert pool.available == pool.total
            assert len(runner.session.transfers) == 0
            assert runner.session.running == []
        assert len(self.queue) == 0
