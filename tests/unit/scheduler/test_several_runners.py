"""Several runners: which one a request goes to, and what becomes of it when one is lost."""

import pytest
from scheduler_simulation import Simulation, alone, identity

from services.common.errors import Unavailable
from services.scheduler.request import FinishReason, Phase


def test_a_lost_runners_requests_go_on_elsewhere_with_their_tokens() -> None:
    sim = Simulation(identity("a"), run_ahead=2)
    request = sim.submit([5] * 9, 30)
    sim.run(until=lambda: request.output_tokens >= 7)
    sim.lose(sim.runners[0])
    assert request.phase is Phase.QUEUED
    sim.attach(identity("b"))
    sim.run()

    assert request.tokens[9:] == alone([5] * 9, 30)
    assert request.recomputed_tokens > 0
    assert request.lost_runners == 1
    sim.check_idle()


def test_a_request_that_lost_two_runners_ends_with_an_error_that_says_so() -> None:
    sim = Simulation(identity("a"))
    request = sim.submit([5] * 9, 30)
    for name in ("b", "c"):
        sim.run(until=lambda: request.phase is Phase.DECODE)
        sim.lose(sim.runners[0])
        sim.attach(identity(name))

    assert request.finish is FinishReason.ERROR
    assert request.error is not None
    assert "lost 2 runners" in request.error.message
    sim.run()
    sim.check_idle()


def test_requests_wait_for_a_runner_for_so_long_and_then_hear_that_there_is_none() -> None:
    sim = Simulation()
    request = sim.submit([5] * 9, 30)
    sim.lose(sim.runners[0])
    sim.fleet.tick(sim.now + 29)
    assert not request.is_done
    sim.fleet.tick(sim.now + 31)

    assert isinstance(request.error, Unavailable)
    assert request.error.retry_after_seconds
    sim.now += 31
    with pytest.raises(Unavailable):
        sim.submit([5], 1)


def test_a_silent_runner_counts_as_lost_after_three_heartbeats() -> None:
    sim = Simulation()
    sim.fleet.tick(2.9)
    assert len(sim.fleet.sessions) == 1
    sim.fleet.tick(3.1)

    assert sim.fleet.sessions == []
    assert sim.runners[0].session.is_closed


def test_the_same_runner_attaching_again_fences_its_older_self() -> None:
    sim = Simulation(identity("a"))
    old = sim.runners[0].session
    new = sim.attach(identity("a")).session

    assert old.is_closed
    assert sim.fleet.sessions == [new]
    assert new.epoch > old.epoch


def test_requests_go_to_the_runner_of_their_model_and_spread_over_equal_ones() -> None:
    sim = Simulation(identity("a"), identity("b"), identity("c", model="other"))
    same = [sim.submit(prompt, 12) for prompt in ([first, *range(5, 13)] for first in range(3, 7))]
    other = sim.submit([5] * 9, 12, model="other")
    named = [sim.submit([7] * 9, 5, model="scripted") for _ in range(2)]
    sim.run(until=lambda: all(request.served_by for request in (*same, *named, other)))

    assert other.served_by is not None
    assert other.served_by[2] == "c"
    assert {request.served_by[2] for request in same if request.served_by} >= {"a", "b"}
    assert all(request.served_by[0] == "scripted" for request in named if request.served_by)
    sim.run()
    sim.check_idle()


def test_a_long_cached_prefix_decides_between_runners() -> None:
    sim = Simulation(identity("a"), identity("b"))
    prompt = list(range(5, 55))
    first = sim.submit(prompt, 3)
    sim.run()
    second = sim.submit([*prompt, 3], 3)
    sim.run()

    assert first.served_by == second.served_by
    assert second.cached_tokens_l1 == 48
