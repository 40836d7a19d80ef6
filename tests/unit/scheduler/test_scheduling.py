"""Batches, preemption and limits, on scripted runners that check every block they are given."""

import pytest
from scheduler_simulation import EOS, Simulation, alone, identity

from services.common.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound, Overloaded
from services.scheduler.admission import TokenizerMismatch
from services.scheduler.request import CachePolicy, FinishReason, Phase


def prompts(count: int, length: int) -> list[list[int]]:
    return [[number + 3, *range(5, length + 4)] for number in range(count)]


@pytest.mark.parametrize("run_ahead", [1, 2, 3])
def test_run_ahead_changes_no_token(run_ahead: int) -> None:
    sim = Simulation(identity(block_count=64), run_ahead=run_ahead)
    requests = [sim.submit(prompt, 20 + 3 * index) for index, prompt in enumerate(prompts(6, 13))]
    sim.run()

    for request in requests:
        assert request.tokens[13:] == alone(request.spec.prompt, request.spec.max_tokens)
        assert request.finish is FinishReason.LENGTH
    sim.check_idle()


@pytest.mark.parametrize("run_ahead", [1, 2])
def test_the_end_token_is_counted_and_nothing_after_it_is(run_ahead: int) -> None:
    sim = Simulation(run_ahead=run_ahead, script=lambda _, known: EOS if len(known) == 8 else 7)
    request = sim.submit([5, 6, 7, 8, 9], 50)
    sim.run()

    assert request.tokens[5:] == [7, 7, 7, EOS]
    assert request.finish is FinishReason.STOP
    assert sim.runners[0].engine.computed_tokens["r0"] <= 5 + 3 + run_ahead - 1
    sim.check_idle()


def test_ignore_eos_goes_on_to_max_tokens_but_stop_tokens_still_end() -> None:
    """STOP-4: the model's own end tokens are ignored, the caller's stop tokens never."""
    sim = Simulation(script=lambda _, known: EOS if len(known) < 20 else 44)
    long = sim.submit([5, 6, 7], 20, ignore_eos=True)
    stopped = sim.submit([5, 6, 8], 40, ignore_eos=True, stop_token_ids=frozenset({44}))
    sim.run()

    assert (long.output_tokens, long.finish) == (20, FinishReason.LENGTH)
    assert (stopped.tokens[-1], stopped.finish) == (44, FinishReason.STOP)


def test_running_requests_decode_while_a_long_prompt_is_prefilled_in_chunks() -> None:
    sim = Simulation(identity(step_tokens=8), run_ahead=1)
    first = sim.submit([5, 6, 7], 30)
    sim.run(until=lambda: first.output_tokens >= 2)
    long = sim.submit(range(5, 65), 3)
    before = first.output_tokens
    sim.run(until=lambda: long.output_tokens >= 1)

    assert first.output_tokens - before >= 8
    assert sim.runners[0].engine.largest_step <= 8
    sim.run()
    assert long.tokens[60:] == alone(range(5, 65), 3)


def test_what_can_never_fit_is_refused_at_once_and_others_go_on() -> None:
    """SCH-1."""
    sim = Simulation(identity(block_count=16, context_length=256))
    with pytest.raises(ContextLengthExceeded, match="64"):
        sim.submit(range(5, 105), 1)
    with pytest.raises(ContextLengthExceeded, match=r"40 prompt tokens plus 60 output tokens are 100.*64"):
        sim.submit(range(5, 45), 60)
    shorts = [sim.submit([number + 5] * 6, 8) for number in range(5)]
    sim.run()

    assert all(request.finish is FinishReason.LENGTH for request in shorts)
    sim.check_idle()


@pytest.mark.parametrize(
    ("prompt", "wanted", "fits"), [(8, 2040, True), (8, 2041, False), (2047, 1, True), (2048, 1, False)]
)
def test_the_edge_of_the_context_is_exact(prompt: int, wanted: int, fits: bool) -> None:
    """VAL-4."""
    sim = Simulation(identity(block_count=1024, context_length=2048))
    if fits:
        sim.submit([5] * prompt, wanted)
        return
    with pytest.raises(ContextLengthExceeded) as refusal:
        sim.submit([5] * prompt, wanted)
    for number in (2048, prompt, wanted):
        assert str(number) in refusal.value.message


@pytest.mark.parametrize("run_ahead", [1, 2])
def test_preemption_changes_no_token_and_sends_none_twice(run_ahead: int) -> None:
    """SCH-4."""
    sim = Simulation(identity(block_count=40), run_ahead=run_ahead)
    requests = [sim.submit(prompt, 50) for prompt in prompts(4, 10)]
    sim.run()

    for request in requests:
        assert request.tokens[10:] == alone(request.spec.prompt, 50)
    assert sum(request.preemptions for request in requests) > 0
    assert requests[0].preemptions == 0, "the first to arrive is the last to be preempted"
    sim.check_idle()


def test_a_crowd_in_a_small_pool_is_preempted_a_bounded_number_of_times() -> None:
    """SCH-5."""
    sim = Simulation(identity(block_count=24, step_tokens=6))
    requests = [sim.submit(prompt, 60) for prompt in prompts(6, 20)]
    sim.run()

    for request in requests:
        assert request.tokens[20:] == alone(request.spec.prompt, 60)
        assert request.preemptions <= 5
    sim.check_idle()


def test_a_preempted_request_keeps_its_rank() -> None:
    """SCH-5."""
    sim = Simulation(identity(block_count=14))
    first, second = (sim.submit(prompt, 40) for prompt in prompts(2, 10))
    sim.run(until=lambda: second.phase is Phase.PREEMPTED)
    third = sim.submit([5] * 4, 4)

    assert list(sim.queue) == [second, third]
    sim.run()
    assert first.finish is second.finish is third.finish is FinishReason.LENGTH


def test_an_urgent_request_takes_the_only_slot_and_the_other_one_completes_unchanged() -> None:
    """SCH-6."""
    sim = Simulation(identity(sequence_slots=1))
    low = sim.submit([5, 6, 7], 60, priority=7)
    sim.run(until=lambda: low.output_tokens >= 5)
    high = sim.submit([8, 9], 5, priority=1)
    plans = sim.runners[0].session._next_step
    sim.run(until=lambda: high.output_tokens >= 1)

    assert sim.runners[0].session._next_step - plans <= 4
    sim.run()
    assert low.tokens[3:] == alone([5, 6, 7], 60)
    assert low.preemptions == 1


def test_equal_priority_never_preempts_for_a_slot() -> None:
    """SCH-6."""
    sim = Simulation(identity(sequence_slots=1))
    first, second = sim.submit([5, 6, 7], 30), sim.submit([8, 9], 5)
    sim.run()

    assert first.preemptions == 0
    assert second.finish is FinishReason.LENGTH


def test_cancelled_requests_leave_no_block_behind() -> None:
    """CAN-1: before a step, in mid prefill, in decode."""
    sim = Simulation(identity(step_tokens=8), run_ahead=2)
    early = sim.submit([5] * 40, 100)
    sim.cancel(early)
    middle = sim.submit([6] * 40, 100)
    sim.run(until=lambda: middle.phase is Phase.PREFILL and sim.runners[0].engine.computed_tokens.get("r1", 0) >= 8)
    sim.cancel(middle)
    late = sim.submit([7] * 10, 100)
    sim.run(until=lambda: late.output_tokens >= 3)
    computed = sim.runners[0].engine.computed_tokens["r2"]
    sim.cancel(late)
    assert sim.runners[0].session.pool.used == 0, "freed at once, whatever is still in flight"
    sim.run()

    assert sim.runners[0].engine.computed_tokens["r2"] - computed <= 2
    assert "r0" not in sim.runners[0].engine.computed_tokens
    assert sim.runners[0].engine.sequences == {}
    sim.check_idle()


def test_a_queued_request_of_a_departed_client_is_never_computed() -> None:
    """CAN-2."""
    sim = Simulation(identity(sequence_slots=1))
    busy, gone, next_one = (sim.submit(prompt, 10) for prompt in prompts(3, 6))
    sim.run(until=lambda: busy.output_tokens >= 2)
    sim.cancel(gone)
    assert len(sim.queue) == 1
    sim.run()

    assert "r1" not in sim.runners[0].engine.computed_tokens
    assert next_one.finish is FinishReason.LENGTH


def test_blocks_freed_by_a_cancellation_serve_others_while_its_plans_are_in_flight() -> None:
    sim = Simulation(identity(block_count=8), run_ahead=3)
    first = sim.submit([5] * 9, 20, cache_policy=CachePolicy.BYPASS)
    sim.run(until=lambda: first.output_tokens >= 4)
    for runner in sim.runners:
        runner.plan_ahead()
    sim.cancel(first)
    second = sim.submit([6] * 25, 7)
    sim.run()

    assert second.tokens[25:] == alone([6] * 25, 7)
    sim.check_idle()


def test_a_failed_sequence_ends_alone_and_leaves_nothing_of_that_step() -> None:
    """SMP-8."""
    sim = Simulation(run_ahead=2)
    bad, good = sim.submit([5] * 9, 30), sim.submit([6] * 9, 30)
    sim.run(until=lambda: bad.output_tokens >= 2)
    sim.runners[0].engine.failing.add("r0")
    sim.run()

    assert bad.finish is FinishReason.ERROR
    assert bad.error is not None
    assert "NOT_A_NUMBER" in bad.error.message
    assert good.tokens[9:] == alone([6] * 9, 30)
    sim.check_idle()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": []}, "prompt_token_ids"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": [5, 1000]}, "token id 1000 at position 1"),
        ({"stop_token_ids": frozenset({1000})}, "stop_token_ids"),
        ({"choices": 2}, "choices"),
        ({"priority": 10}, "priority"),
        ({"min_tokens": 9}, "min_tokens"),
    ],
)
def test_bad_fields_are_refused_by_name(fields: dict[str, object], named: str) -> None:
    sim = Simulation()
    with pytest.raises(InvalidRequest, match=named):
        sim.submit(**{"prompt": [5, 6], "max_tokens": 4, **fields})  # type: ignore[arg-type]


def test_unknown_models_and_foreign_tokenizers_are_refused() -> None:
    sim = Simulation()
    with pytest.raises(ModelNotFound, match="scripted"):
        sim.submit([5], 1, model="other")
    with pytest.raises(TokenizerMismatch):
        sim.submit([5], 1, tokenizer_digest="another")


def test_the_queue_is_bounded_and_do_not_queue_is_refused_when_it_would_wait() -> None:
    sim = Simulation(identity(sequence_slots=1), queue_limit=2)
    sim.submit([5], 9, do_not_queue=True)
    sim.step()
    with pytest.raises(Overloaded):
        sim.submit([5], 9, do_not_queue=True)
    sim.submit([5], 9)
    sim.submit([5], 9)
    with pytest.raises(Overloaded, match="2 requests wait"):
        sim.submit([5], 9)


def test_everything_returns_to_the_baseline_after_300_requests_of_every_fate() -> None:
    """KV-9."""
    sim = Simulation(identity(block_count=32, has_l2=True), script=lambda _, known: (sum(known) * 7 + len(known)) % 40)
    for number in range(300):
        prompt = [number % 7 + 3] * (number % 19 + 1)
        policy = list(CachePolicy)[number % 3]
        request = sim.submit(prompt, number % 23 + 1, cache_policy=policy, priority=number % 10)
        sim.step()
        if number % 5 == 0:
            sim.cancel(request)
        if number % 31 == 0:
            sim.runners[0].engine.failing.add(request.spec.request_id)
        while len(sim.queue) > 20:
            sim.step()
    sim.run()

    assert all(request.is_done for request in sim.requests)
    sim.check_idle()
    whole = sim.submit(range(100, 227), 1)
    sim.run()
    assert whole.finish is FinishReason.LENGTH
