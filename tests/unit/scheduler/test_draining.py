"""A runner that says that it is about to leave."""

from scheduler_simulation import Simulation, alone, identity

from services.scheduler.request import FinishReason, Phase


def test_a_draining_runner_finishes_what_it_has_and_gets_nothing_new() -> None:
    sim = Simulation(identity("a"))
    old = sim.submit([5] * 9, 40)
    sim.run(until=lambda: old.output_tokens >= 5)
    leaving = sim.runners[0]
    sim.fleet.drain(leaving.session)
    urgent = sim.submit([6] * 9, 5, priority=0)
    for _ in range(10):
        sim.step()
    assert urgent.phase is Phase.QUEUED
    other = sim.attach(identity("b"))
    sim.run()

    assert old.tokens[9:] == alone([5] * 9, 40)
    assert set(leaving.engine.computed_tokens) == {"r0"}
    assert set(other.engine.computed_tokens) == {"r1"}
    assert urgent.finish is FinishReason.LENGTH
    sim.check_idle()


def test_what_waits_for_a_draining_runner_starts_at_one_that_sleeps() -> None:
    sim = Simulation(identity("a", sequence_slots=1), identity("b", sequence_slots=1))
    runs = [sim.submit([number + 5] * 9, 60) for number in range(2)]
    waits = sim.submit([7] * 9, 3)
    sim.run(until=lambda: all(request.output_tokens >= 2 for request in runs))
    assert waits.phase is Phase.QUEUED
    sim.fleet.drain(sim.runners[0].session)
    sim.cancel(runs[0])
    for _ in range(10):
        sim.step()
    assert waits.phase is Phase.QUEUED
    sim.run()

    assert waits.served_by is not None
    assert waits.served_by[2] == "b"


def test_planned_departures_are_not_lost_runners() -> None:
    """A rolling restart: every runner leaves before the long request ends."""
    sim = Simulation(identity("a"))
    request = sim.submit([5] * 9, 60)
    for name in ("b", "c", "d"):
        tokens = request.output_tokens
        sim.run(until=lambda tokens=tokens: request.output_tokens >= tokens + 5)  # type: ignore[misc]
        sim.fleet.drain(sim.runners[0].session)
        sim.lose(sim.runners[0])
        sim.attach(identity(name))
    sim.run()

    assert request.lost_runners == 0
    assert request.tokens[9:] == alone([5] * 9, 60)
    sim.check_idle()
