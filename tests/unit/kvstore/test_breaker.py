"""The breaker, against a model of itself and by example."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.common.breaker import Breaker, BreakerSettings, Permit

SETTINGS = BreakerSettings(failures=3, open_seconds=1.0, open_max_seconds=4.0, probe_seconds=2.0)


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(SETTINGS, clock)


def taken(permit: Permit | None) -> Permit:
    assert permit is not None
    return permit


def open_it(breaker: Breaker) -> None:
    for _ in range(SETTINGS.failures):
        breaker.failed(taken(breaker.permit()))


def test_only_failures_in_a_row_open_it(breaker: Breaker) -> None:
    for _ in range(5):
        assert not breaker.failed(taken(breaker.permit()))
        assert not breaker.failed(taken(breaker.permit()))
        breaker.succeeded(taken(breaker.permit()))
    assert not breaker.is_open
    open_it(breaker)
    assert breaker.is_open
    assert breaker.permit() is None
    assert breaker.openings == 1


def test_one_probe_at_a_time_finds_out_and_each_failed_one_waits_longer(breaker: Breaker, clock: Clock) -> None:
    open_it(breaker)
    for wait in (1.0, 2.0, 4.0, 4.0):
        assert breaker.seconds_until_probe() == pytest.approx(wait)
        clock.now += wait - 0.01
        assert breaker.probe() is None
        clock.now += 0.01
        probe = taken(breaker.probe())
        assert breaker.probe() is None, "a second probe beside the first"
        breaker.failed(probe)
    clock.now += 4
    assert breaker.succeeded(taken(breaker.probe()))
    assert breaker.seconds_until_probe() is None
    open_it(breaker)
    assert breaker.seconds_until_probe() == pytest.approx(1.0), "the wait begins anew after it was closed"


def test_the_late_end_of_an_older_call_neither_closes_nor_prolongs_it(breaker: Breaker, clock: Clock) -> None:
    early = [taken(breaker.permit()) for _ in range(2)]
    open_it(breaker)
    assert not breaker.succeeded(early[0])
    assert breaker.is_open
    clock.now += 1
    probe = taken(breaker.probe())
    assert not breaker.failed(early[1])
    assert breaker.succeeded(probe)


def test_a_probe_that_never_ends_is_followed_by_another(breaker: Breaker, clock: Clock) -> None:
    open_it(breaker)
    clock.now += 1
    lost = taken(breaker.probe())
    clock.now += SETTINGS.probe_seconds
    second = taken(breaker.probe())
    assert not breaker.succeeded(lost), "nobody believes the lost one any more"
    assert breaker.succeeded(second)


def test_an_abandoned_probe_may_be_repeated_at_once(breaker: Breaker, clock: Clock) -> None:
    open_it(breaker)
    clock.now += 1
    breaker.abandoned(taken(breaker.probe()))
    assert breaker.probe() is not None


class BreakerMachine(RuleBasedStateMachine):
    """Any order of calls, ends and time: never a call while open, never two live probes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = Breaker(SETTINGS, self.clock)
        self.calls: list[Permit] = []
        self.probe: Permit | None = None
        self.probe_since = 0.0
        self.failures = 0

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def call(self) -> None:
        permit = self.breaker.permit()
        assert (permit is None) == self.breaker.is_open
        if permit is not None:
            self.calls.append(permit)

    @rule()
    def begin_probe(self) -> None:
        permit = self.breaker.probe()
        if permit is None:
            return
        assert self.breaker.is_open
        if self.probe is not None:
            assert self.clock.now - self.probe_since >= SETTINGS.probe_seconds - 1e-6
        self.probe, self.probe_since = permit, self.clock.now

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), is_answered=st.booleans())
    def end_call(self, data: st.DataObject, is_answered: bool) -> None:
        permit = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        was_open, is_current = self.breaker.is_open, permit in [self.breaker.permit()]
        opened = self.breaker.failed(permit) if not is_answered else False
        if is_answered:
            self.breaker.succeeded(permit)
        if was_open:
            assert self.breaker.is_open, "only a probe closes it"
        if is_current:
            self.failures = 0 if is_answered else self.failures + 1
            assert opened == (self.failures == SETTINGS.failures)
            self.failures = 0 if opened else self.failures

    @precondition(lambda self: self.probe is not None)
    @rule(is_answered=st.booleans())
    def end_probe(self, is_answered: bool) -> None:
        assert self.probe is not None
        probe, self.probe = self.probe, None
        if is_answered:
            assert self.breaker.succeeded(probe) == (not self.breaker.is_open)
            assert not self.breaker.is_open
            self.failures = 0
        else:
            assert not self.breaker.failed(probe)
            assert self.breaker.is_open

    @invariant()
    def open_means_a_probe_is_planned(self) -> None:
        assert self.breaker.is_open == (self.breaker.seconds_until_probe() is not None)


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
