"""What the caches give to a request: counted right, held while used, the same tokens as cold."""

import pytest
from scheduler_simulation import Simulation, alone, identity

from services.scheduler.request import CachePolicy, FinishReason, Phase

WITH_L2 = identity(has_l2=True)


@pytest.mark.parametrize("step_tokens", [3, 64])
@pytest.mark.parametrize("length", [12, 13, 14, 16, 17, 1, 4])
def test_a_repeated_prompt_uses_all_but_its_last_token(length: int, step_tokens: int) -> None:
    """KV-4, first level."""
    sim = Simulation(identity(step_tokens=step_tokens, sequence_slots=3))
    prompt = list(range(5, 5 + length))
    first = sim.submit(prompt, 6)
    sim.run()
    second = sim.submit(prompt, 6)
    sim.run()

    assert (first.cached_tokens_l1, second.cached_tokens_l1) == (0, (length - 1) // 4 * 4)
    assert first.tokens == second.tokens == prompt + alone(prompt, 6)


@pytest.mark.parametrize("step_tokens", [3, 64])
@pytest.mark.parametrize("length", [12, 13, 14, 16, 17, 1, 4])
def test_a_prompt_comes_back_from_the_second_level_after_the_runner_is_gone(length: int, step_tokens: int) -> None:
    """KV-4, second level only; also that the runner's restart forgets its own level."""
    sim = Simulation(identity(step_tokens=step_tokens, sequence_slots=3, has_l2=True))
    prompt = list(range(5, 5 + length))
    sim.submit(prompt, 6)
    sim.run()
    sim.lose(sim.runners[0])
    sim.attach(identity(step_tokens=step_tokens, sequence_slots=3, has_l2=True))
    second = sim.submit(prompt, 6)
    sim.run()

    assert (second.cached_tokens_l1, second.cached_tokens_l2) == (0, (length - 1) // 4 * 4)
    assert second.tokens == prompt + alone(prompt, 6)
    assert sim.runners[0].engine.computed_tokens["r1"] == length - second.cached_tokens_l2 + 5
    sim.check_idle()


def test_colliding_hashes_never_share_a_block() -> None:
    """KV-3: the scripted runner checks every position's history."""
    sim = Simulation(identity(), digest=lambda data: b"one hash for all")
    requests = [sim.submit([number + 5, *range(6, 20)], 8) for number in range(5)]
    sim.run()

    for request in requests:
        assert request.tokens == [*request.spec.prompt, *alone(request.spec.prompt, 8)]
    assert sum(request.cached_tokens_l1 for request in requests) == 0


def test_a_prefix_evicted_while_its_request_waits_is_computed_and_not_counted() -> None:
    """KV-8."""
    sim = Simulation(identity(block_count=16, sequence_slots=1))
    prompt = list(range(5, 22))
    sim.submit(prompt, 2)
    sim.run()
    sim.submit(range(100, 150), 14)
    waiting = sim.submit(prompt, 2)
    sim.run()

    assert waiting.cached_tokens_l1 == 0
    assert waiting.tokens == prompt + alone(prompt, 2)


def test_what_was_computed_before_an_abort_is_reused() -> None:
    """KV-12."""
    sim = Simulation()
    prompt = list(range(5, 38))
    first = sim.submit(prompt, 50)
    sim.run(until=lambda: first.output_tokens >= 1)
    sim.cancel(first)
    second = sim.submit([*prompt, 99], 2)
    sim.run()

    assert second.cached_tokens_l1 == 32


def test_tenants_do_not_share() -> None:
    """KV-1."""
    sim = Simulation()
    prompt = list(range(5, 25))
    sim.submit(prompt, 2, tenant_namespace="one")
    sim.run()
    other, same = sim.submit(prompt, 2, tenant_namespace="two"), sim.submit(prompt, 2, tenant_namespace="one")
    sim.run()

    assert (other.cached_tokens_l1, same.cached_tokens_l1) == (0, 16)


def test_bypass_neither_uses_nor_leaves_and_read_only_leaves_nothing() -> None:
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    sim.submit(prompt, 2, cache_policy=CachePolicy.BYPASS)
    sim.run()
    reader = sim.submit(prompt, 2, cache_policy=CachePolicy.READ_ONLY)
    sim.run()
    assert reader.cached_tokens_l1 == reader.cached_tokens_l2 == 0
    assert sim.runners[0].session.pool.cached == 0
    assert sim.publisher.stored == {}
    sim.submit(prompt, 2)
    sim.run()
    bypass = sim.submit(prompt, 2, cache_policy=CachePolicy.BYPASS)
    reader = sim.submit(prompt, 2, cache_policy=CachePolicy.READ_ONLY)
    sim.run()

    assert bypass.cached_tokens_l1 == bypass.cached_tokens_l2 == 0
    assert reader.cached_tokens_l1 == 16
    sim.check_idle()


def test_a_value_that_is_gone_costs_only_the_hit() -> None:
    """KV-8, second level."""
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    sim.submit(prompt, 2)
    sim.run()
    sim.lose(sim.runners[0])
    sim.store.values.clear()
    sim.attach(WITH_L2)
    second = sim.submit(prompt, 4)
    sim.run()

    assert second.cached_tokens_l2 == 0
    assert second.tokens == prompt + alone(prompt, 4)
    assert sim.publisher.forgotten
    sim.check_idle()


def warm_l2(sim: Simulation, prompt: list[int]) -> None:
    """Leaves the prompt in the second level only."""
    sim.submit(prompt, 2)
    sim.run()
    sim.lose(sim.runners[0])
    sim.attach(WITH_L2)


def test_an_abort_during_a_load_keeps_the_blocks_until_the_transfer_has_ended() -> None:
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    warm_l2(sim, prompt)
    runner = sim.runners[0]
    runner.holds_transfers = True
    request = sim.submit(prompt, 4)
    sim.run(until=lambda: bool(runner.held))
    assert request.phase is Phase.LOADING
    sim.cancel(request)
    assert runner.session.pool.used == 4

    runner.deliver_transfers()
    sim.check_idle()


def test_a_load_that_takes_too_long_is_given_up_for_other_blocks() -> None:
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    warm_l2(sim, prompt)
    runner = sim.runners[0]
    runner.holds_transfers = True
    request = sim.submit(prompt, 4)
    sim.run(until=lambda: bool(runner.held))
    load = request.residency.load if request.residency else None
    assert load is not None
    assert load.give_up_at is not None
    assert load.give_up_at < 1.0
    sim.fleet.tick(load.give_up_at)
    sim.run()

    assert request.tokens == prompt + alone(prompt, 4)
    assert request.cached_tokens_l2 == 0
    assert runner.session.pool.used == 4, "the late load's blocks"
    runner.holds_transfers = False
    runner.deliver_transfers()
    sim.run()
    sim.check_idle()


def test_two_requests_for_the_same_stored_prefix_load_it_once() -> None:
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    warm_l2(sim, prompt)
    first, second = sim.submit(prompt, 4), sim.submit([*prompt, 77], 4)
    sim.run()

    assert first.cached_tokens_l2 == 16
    assert (second.cached_tokens_l1, second.cached_tokens_l2) == (16, 4), "the fifth block is of use to it alone"
    assert second.tokens == [*prompt, 77, *alone([*prompt, 77], 4)]
    sim.check_idle()


def test_a_failed_request_publishes_nothing() -> None:
    """SMP-8."""
    sim = Simulation(WITH_L2)
    sim.runners[0].engine.failing.add("r0")
    bad = sim.submit(range(5, 25), 4)
    sim.run()

    assert bad.finish is FinishReason.ERROR
    assert sim.publisher.stored == {}
    assert sim.runners[0].session.pool.cached == 0


def test_full_blocks_of_prompt_and_output_are_published_once() -> None:
    sim = Simulation(WITH_L2)
    sim.submit(range(5, 14), 12)
    sim.run()

    assert len(sim.publisher.stored) == 5
    assert sum(len(value) for value in sim.store.values.values()) == 5
    sim.check_idle()


def test_a_value_that_is_gone_is_stored_again_from_its_first_block() -> None:
    """KV-8, second level: what is stored after the loss is of use."""
    sim = Simulation(WITH_L2)
    prompt = list(range(5, 25))
    warm_l2(sim, prompt)
    sim.store.values.clear()
    sim.submit(prompt, 4)
    sim.run()
    sim.lose(sim.runners[0])
    sim.attach(WITH_L2)
    third = sim.submit(prompt, 4)
    sim.run()

    assert third.cached_tokens_l2 == 16
    assert third.tokens == prompt + alone(prompt, 4)


def test_what_was_not_taken_at_first_is_offered_again_with_what_follows_it() -> None:
    sim = Simulation(WITH_L2)
    sim.publisher.is_storing = False
    request = sim.submit(range(5, 25), 12)
    sim.run(until=lambda: request.output_tokens >= 2)
    sim.publisher.is_storing = True
    sim.run()

    assert len(sim.publisher.stored) == 7
    (value,) = sim.store.values.values()
    assert [len(history) for _, history in value] == [4, 8, 12, 16, 20, 24, 28]
