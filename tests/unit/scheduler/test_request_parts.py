"""The small parts of a request's life: outbox, stage clock, queue, and what a runner may not say."""

import asyncio

import pytest
from scheduler_simulation import Simulation

from services.scheduler.outbox import Outbox
from services.scheduler.request import Phase
from services.scheduler.settle import ProtocolViolation, settle_step
from services.scheduler.stage_clock import EndedStage, Stage, StageClock
from services.scheduler.step_plan import StepOutcome


async def test_a_slow_reader_gets_all_tokens_in_one_message() -> None:
    """GRPC-9."""
    outbox = Outbox()
    for token_id in range(1000):
        outbox.put(token_id)
    outbox.close()

    assert await outbox.take() == (list(range(1000)), True)


async def test_a_take_waits_for_news() -> None:
    outbox = Outbox()
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(7)

    assert await taking == ([7], False)


def test_stages_follow_each_other_without_a_gap_and_say_how_they_ended() -> None:
    ended: list[EndedStage] = []
    clock = StageClock(10.0, ended.append)
    clock.enter(Stage.QUEUE, 10.0)
    clock.enter(Stage.PREFILL, 12.0)
    clock.enter(Stage.PREFILL, 13.0)
    clock.stop(15.0, "CANCELLED")
    clock.stop(16.0)

    assert [(item.stage, item.started, item.ended, item.failure) for item in ended] == [
        (Stage.QUEUE, 10.0, 12.0, None),
        (Stage.PREFILL, 12.0, 15.0, "CANCELLED"),
    ]
    assert (clock.seconds(Stage.QUEUE), clock.seconds(Stage.DECODE)) == (2.0, 0.0)


def test_the_queue_is_ordered_by_priority_then_arrival() -> None:
    sim = Simulation()
    late, urgent, first = (sim.submit([5], 1, priority=priority) for priority in (5, 0, 4))
    second = sim.submit([5], 1, priority=4)

    assert list(sim.queue) == [urgent, first, second, late]
    assert sim.queue.lengths() == {0: 1, 4: 2, 5: 1}
    assert sim.queue.remove(first)
    assert not sim.queue.remove(first)
    assert list(sim.queue) == [urgent, second, late]


def outcome(step: int, slots: list[int], token_ids: list[int]) -> StepOutcome:
    return StepOutcome(step, slots, token_ids, [], None, None)


def test_a_result_out_of_order_is_a_protocol_violation() -> None:
    sim = Simulation()
    sim.submit([5, 6], 4)
    sim.runners[0].plan_ahead()
    with pytest.raises(ProtocolViolation, match="step 2, expected 1"):
        settle_step(sim.runners[0].session, outcome(2, [], []), 0.0)
    with pytest.raises(ProtocolViolation):
        settle_step(sim.runners[0].session, outcome(1, [0, 1], [5]), 0.0)


@pytest.mark.parametrize("token_ids", [[], [1000]])
def test_a_missing_or_impossible_token_ends_its_request_only(token_ids: list[int]) -> None:
    sim = Simulation(run_ahead=1)
    request = sim.submit([5, 6], 4)
    sim.runners[0].plan_ahead()
    slots = [request.residency.slot] if request.residency and token_ids else []
    settle_step(sim.runners[0].session, outcome(1, slots, token_ids), 0.0)

    assert request.phase is Phase.DONE
    assert request.error is not None
    assert request.error.reason == "GENERATION_FAILED"
    assert sim.runners[0].session.pool.used == 0
