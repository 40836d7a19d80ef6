"""Whatever happens in whatever order, a request gets the tokens that it would have got alone, and nothing leaks."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scheduler_simulation import Simulation, alone, identity

from services.scheduler.request import CachePolicy, FinishReason, Request

RUNNER = {"block_count": 14, "context_length": 56, "step_tokens": 7, "sequence_slots": 3, "has_l2": True}


class SchedulerMachine(RuleBasedStateMachine):
    """Small pools, small steps, few different tokens: shared prefixes, preemptions and collisions all the time."""

    @initialize(run_ahead=st.integers(1, 3), runners=st.integers(1, 2), bits=st.sampled_from([None, 4]))
    def start(self, run_ahead: int, runners: int, bits: int | None) -> None:
        """Builds a scheduler, perhaps with a hash of 4 bits."""
        digest = {} if bits is None else {"digest": lambda data: bytes([sum(data) % 16])}
        names = [identity(f"runner-{number}", **RUNNER) for number in range(runners)]  # type: ignore[arg-type]
        self.sim = Simulation(*names, run_ahead=run_ahead, **digest)  # type: ignore[arg-type]
        # Two values under one colliding key would be told apart by the token ids in the value's header.
        self.sim.publisher.is_storing = bits is None

    @rule(
        prompt=st.lists(st.integers(5, 6), min_size=1, max_size=20),
        max_tokens=st.integers(1, 30),
        policy=st.sampled_from(CachePolicy),
        priority=st.integers(0, 2),
    )
    def submit(self, prompt: list[int], max_tokens: int, policy: CachePolicy, priority: int) -> None:
        """A gateway sends a request."""
        self.sim.submit(prompt, max_tokens, cache_policy=policy, priority=priority)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        """Runners work."""
        for _ in range(steps):
            self.sim.step()

    @precondition(lambda self: self.sim.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A client goes away."""
        self.sim.cancel(data.draw(st.sampled_from(self.sim.requests)))

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A runner is killed and comes back empty."""
        runner = data.draw(st.sampled_from(self.sim.runners))
        self.sim.lose(runner)
        self.sim.attach(runner.session.identity)

    @rule(data=st.data(), steps=st.integers(0, 6))
    def replace(self, data: st.DataObject, steps: int) -> None:
        """A runner announces that it leaves, works on for a while, leaves, and another one comes."""
        runner = data.draw(st.sampled_from(self.sim.runners))
        lost = [request.lost_runners for request in self.sim.requests]
        self.sim.fleet.drain(runner.session)
        for _ in range(steps):
            self.sim.step()
        self.sim.lose(runner)
        self.sim.attach(runner.session.identity)
        assert lost == [request.lost_runners for request in self.sim.requests]

    @rule(data=st.data())
    def hold_transfers(self, data: st.DataObject) -> None:
        """Transfers take long, or come all at once."""
        runner = data.draw(st.sampled_from(self.sim.runners))
        runner.holds_transfers = not runner.holds_transfers
        if not runner.holds_transfers:
            runner.deliver_transfers()

    @rule(seconds=st.sampled_from([0.5, 5.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and every runner is heard of."""
        self.sim.wait(seconds)

    @invariant()
    def blocks_are_accounted_for(self) -> None:
        """KV-9."""
        for runner in self.sim.runners:
            runner.session.pool.check_integrity()

    @invariant()
    def tokens_are_right(self) -> None:
        """SCH-4: compared with the same request alone."""
        for request in self.sim.requests:
            check_tokens(request)

    def teardown(self) -> None:
        """Everything comes to an end, and nothing is left."""
        if not hasattr(self, "sim"):
            return
        for runner in self.sim.runners:
            runner.holds_transfers = False
            runner.deliver_transfers()
        self.sim.run()
        for request in self.sim.requests:
            assert request.is_done
            check_tokens(request)
            if request.finish is FinishReason.LENGTH:
                assert request.output_tokens == request.spec.max_tokens
        self.sim.check_idle()


def check_tokens(request: Request) -> None:
    """Compares what came so far."""
    assert request.tokens[len(request.spec.prompt) :] == alone(request.spec.prompt, request.output_tokens)


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


@pytest.mark.timeout(300)
class TestAnyOrderOfEvents(SchedulerMachine.TestCase):  # type: ignore[name-defined,misc]
    """Runs the machine."""
