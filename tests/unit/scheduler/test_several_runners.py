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
    sim.wait(29)
    assert not request.is_done
    sim.wait(2)

    assert isinstance(request.error, Unavailable)
    assert request.error.retry_after_seconds
    with pytest.raises(Unavailable):
        sim.submit([5], 1)


def test_a_silent_runner_counts_as_lost_after_three_heartbeats() -> None:
    sim = Simulation()
    sim.wait(2.9, is_silent=True)
    assert len(sim.fleet.sessions) == 1
    sim.wait(0.2, is_silent=True)

    assert sim.fleet.sessions == []
    assert sim.runners[0].session.is_closed


def test_a_pause_of_the_scheduler_costs_no_runner() -> None:
    """SIGSTOP, or a paused machine: the heartbeats of that time have come, and are read after the clock's tick."""
    sim = Simulation(identity("a"))
    request = sim.submit([5] * 9, 30)
    sim.run(until=lambda: request.output_tokens >= 3)
    sim.wait(1.0)
    sim.now += 60
    sim.fleet.tick(sim.now)
    assert not sim.runners[0].session.is_closed
    sim.wait(2.9, is_silent=True)
    assert not sim.runners[0].session.is_closed
    sim.wait(0.2, is_silent=True)

    assert sim.runners[0].session.is_closed, "it does not hide a runner that stays silent"
    assert request.lost_runners == 1


def test_a_runner_that_was_heard_before_the_late_tick_is_not_heard_in_the_future() -> None:
    sim = Simulation(identity("a"))
    sim.wait(1.0)
    sim.now += 60
    sim.runners[0].session.last_heard = sim.now
    sim.fleet.tick(sim.now)

    assert sim.runners[0].session.last_heard == sim.now


def test_a_pause_of_the_scheduler_does_not_shorten_the_wait_for_a_runner() -> None:
    sim = Simulation(identity("a"))
    request = sim.submit([5] * 9, 5)
    sim.lose(sim.runners[0])
    sim.wait(20)
    sim.now += 60
    sim.fleet.tick(sim.now)
    assert not request.is_done
    sim.attach(identity("a"))
    sim.run()

    assert request.finish is FinishReason.LENGTH


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


def test_a_preempted_request_goes_on_at_a_runner_that_sleeps() -> None:
    sim = Simulation(identity("a", block_count=14))
    first, second = (sim.submit([number + 5, *range(6, 15)], 40) for number in range(2))
    sim.run(until=lambda: second.phase is Phase.DECODE)
    idle = sim.attach(identity("b", block_count=14))
    sim.run(until=lambda: second.preemptions == 1)
    sim.step()

    assert second.residency is not None
    assert second.residency.session is idle.session
    sim.run()
    assert first.finish is second.finish is FinishReason.LENGTH
    sim.check_idle()


def test_a_request_that_finds_its_preferred_runner_full_starts_at_one_that_sleeps() -> None:
    sim = Simulation(identity("a", sequence_slots=1), identity("b", sequence_slots=1))
    # The one that does not hold the prefix plans first, and leaves both requests to the other one.
    sim.runners.reverse()
    prompt = list(range(5, 55))
    sim.submit(prompt, 2)
    sim.run()
    requests = [sim.submit([*prompt, number], 30) for number in (3, 4)]
    for _ in range(3):
        sim.step()

    assert all(request.residency is not None for request in requests)
    sim.run()
    sim.check_idle()


def test_loops_with_nothing_to_do_fall_asleep_while_requests_wait() -> None:
    sim = Simulation(identity("a", sequence_slots=1), identity("b", sequence_slots=1))
    for number in range(6):
        sim.submit([number + 5] * 9, 30)
    sim.step()
    sim.step()
    for runner in sim.runners:
        runner.plan_ahead()

    assert len(sim.queue) == 4
    assert not any(runner.session.news.is_set() for runner in sim.runners)


def test_the_clock_wakes_idle_runners_while_requests_wait() -> None:
    sim = Simulation(identity("a"))
    sim.step()
    request = sim.submit([5] * 9, 3)
    # However it came about: a request that could start, and nobody who looks.
    sim.runners[0].session.news.clear()
    sim.run()
    assert request.phase is Phase.QUEUED
    sim.fleet.tick(sim.now)
    sim.run()

    assert request.finish is FinishReason.LENGTH


def test_a_request_whose_load_took_too_long_goes_on_at_a_runner_that_sleeps() -> None:
    sim = Simulation(identity("a", has_l2=True))
    prompt = list(range(5, 25))
    sim.submit(prompt, 2)
    sim.run()
    sim.lose(sim.runners[0])
    slow = sim.attach(identity("a", has_l2=True))
    slow.holds_transfers = True
    request = sim.submit(prompt, 4)
    sim.run(until=lambda: bool(slow.held))
    idle = sim.attach(identity("b", sequence_slots=1))
    sim.step()
    load = request.residency.load if request.residency else None
    assert load is not None
    assert load.give_up_at is not None
    sim.fleet.tick(load.give_up_at)

    assert request.phase is Phase.QUEUED
    assert idle.session.news.is_set()
