"""The scheduler and its kvstore: hits when it answers, nothing worse than a miss when it does not."""

import time
from pathlib import Path

from memory_kvstore import MemoryKvStore, memory_kvstore
from polling import until
from scheduler_client import gateway
from scheduler_process import LocalScheduler, local_scheduler
from scripted_runner import ScriptedRunner, ScriptedStore, scripted_hello

from services.scheduler.config import SchedulerConfig

PROMPT = list(range(5, 30))
HELLO = scripted_hello(has_l2=True)


def pinned(scheduler: LocalScheduler) -> int:
    return sum(session.pool.used for session in scheduler.parts.fleet.sessions)


async def warm(address: str, store: ScriptedStore, kvstore: MemoryKvStore) -> None:
    """Has a first runner compute and publish the prompt."""
    async with ScriptedRunner(address, HELLO, store=store), gateway(address) as gate:
        await gate.ask(PROMPT, 4)
        await until(lambda: len(kvstore.stored) == 7)


async def test_a_restarted_runner_gets_the_prefix_back_with_the_same_tokens(folder: Path) -> None:
    store = ScriptedStore()
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
    ):
        await warm(scheduler.address, store, kvstore)
        async with ScriptedRunner(scheduler.address, HELLO, store=store) as runner, gateway(scheduler.address) as gate:
            await runner.attached.wait()
            answer = await gate.ask(PROMPT, 4, request_id="again")

            assert answer.last.usage.cached_tokens_l2 == 24
            assert answer.last.timing.kv_load.ToNanoseconds() > 0
            assert runner.engine.computed_tokens["again"] == 4
            await until(lambda: pinned(scheduler) == 0)
            assert len(kvstore.leases) <= 2, "what is stored is not offered again"


async def test_a_request_that_waited_for_the_restart_gets_the_prefix_too(folder: Path) -> None:
    store = ScriptedStore()
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        gateway(scheduler.address) as gate,
    ):
        await warm(scheduler.address, store, kvstore)
        await until(lambda: not scheduler.parts.fleet.sessions)
        call = await gate.open(PROMPT, 4)
        await until(lambda: len(scheduler.parts.queue) == 1)
        async with ScriptedRunner(scheduler.address, HELLO, store=store):
            answer = await gate.read(call)

    assert answer.last.usage.cached_tokens_l2 == 24
    assert answer.last.timing.queue.ToNanoseconds() > 0


async def test_another_tenant_gets_nothing_of_it(folder: Path) -> None:
    store = ScriptedStore()
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
    ):
        await warm(scheduler.address, store, kvstore)
        async with ScriptedRunner(scheduler.address, HELLO, store=store) as runner, gateway(scheduler.address) as gate:
            await runner.attached.wait()
            answer = await gate.ask(PROMPT, 4, tenant_namespace="other")
            assert answer.last.usage.cached_tokens_l2 == answer.last.usage.cached_tokens_l1 == 0


async def test_a_hung_kvstore_costs_its_small_budget_then_nothing_and_is_used_again_by_itself(folder: Path) -> None:
    """L2-5."""
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address, lookup_seconds=0.1)) as scheduler,
        ScriptedRunner(scheduler.address, HELLO) as runner,
        gateway(scheduler.address) as gate,
    ):
        await runner.attached.wait()
        kvstore.answers.clear()
        for number in range(3):
            await gate.ask([number + 5] * 9, 1)
        asked = kvstore.lookups
        started = time.monotonic()
        for number in range(5):
            await gate.ask([number + 50] * 9, 1)
        assert time.monotonic() - started < 0.4
        assert kvstore.lookups <= asked + 1, "the breaker is open"
        kvstore.answers.set()

        async def is_looked_up(number: int) -> bool:
            answer = await gate.ask([number + 100] * 9, 1)
            return answer.last.timing.kv_load.ToNanoseconds() > 0

        ends = time.monotonic() + 10
        number = 0
        while not await is_looked_up(number):
            number += 1
            assert time.monotonic() < ends
        await until(lambda: pinned(scheduler) == 0)


async def test_a_scheduler_without_its_kvstore_serves(folder: Path) -> None:
    config = SchedulerConfig(kvstore=f"unix:{folder}/nobody.sock")
    async with local_scheduler(folder, config) as scheduler, ScriptedRunner(scheduler.address, HELLO) as runner:
        await runner.attached.wait()
        async with gateway(scheduler.address) as gate:
            answers = [await gate.ask([number + 5] * 9, 3) for number in range(6)]
        assert all(len(answer.token_ids) == 3 for answer in answers)
        await until(lambda: pinned(scheduler) == 0)


async def test_a_runner_lost_in_mid_publish_gives_its_leases_back(folder: Path) -> None:
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        gateway(scheduler.address) as gate,
    ):
        async with ScriptedRunner(scheduler.address, HELLO) as runner:
            await runner.attached.wait()
            runner.is_open.clear()
            call = await gate.open(PROMPT, 200)
            await until(lambda: bool(runner.plans))
            kvstore.answers.clear()
            runner.is_open.set()
            await until(lambda: bool(kvstore.offers))
            runner.is_open.clear()
            kvstore.answers.set()
            (session,) = scheduler.parts.fleet.sessions
            await until(lambda: bool(session.transfers.open_publishes()))
        await until(lambda: bool(kvstore.given_back))
        call.cancel()


async def test_a_prefix_that_redis_has_lost_is_stored_again_whole(folder: Path) -> None:
    """KV-8: FLUSHALL, or an eviction that the kvstore has noticed."""
    store = ScriptedStore()
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        gateway(scheduler.address) as gate,
    ):
        await warm(scheduler.address, store, kvstore)
        store.values.clear()
        kvstore.stored.clear()
        async with ScriptedRunner(scheduler.address, HELLO, store=store) as runner:
            await runner.attached.wait()
            assert (await gate.ask(PROMPT, 4)).last.usage.cached_tokens_l2 == 0
            await until(lambda: len(kvstore.stored) >= 6)
        async with ScriptedRunner(scheduler.address, HELLO, store=store) as runner:
            await runner.attached.wait()
            assert (await gate.ask(PROMPT, 4)).last.usage.cached_tokens_l2 == 24


async def test_after_a_failed_load_the_whole_chain_is_offered_again(folder: Path) -> None:
    """KV-8: the kvstore has not noticed yet; the offer makes it look."""
    store = ScriptedStore()
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        gateway(scheduler.address) as gate,
    ):
        await warm(scheduler.address, store, kvstore)
        store.values.clear()
        kvstore.offers.clear()
        async with ScriptedRunner(scheduler.address, HELLO, store=store) as runner:
            await runner.attached.wait()
            assert (await gate.ask(PROMPT, 4)).last.usage.cached_tokens_l2 == 0
            await until(lambda: bool(kvstore.offers))

    first_keys = sorted(kvstore.stored, key=lambda item: kvstore.stored[item][1])
    assert kvstore.offers[0][0] == first_keys[0][1]
    assert len(kvstore.offers[0]) == 6


async def test_a_tail_is_not_stored_without_what_comes_before_it(folder: Path) -> None:
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        ScriptedRunner(scheduler.address, HELLO) as runner,
        gateway(scheduler.address) as gate,
    ):
        await runner.attached.wait()
        kvstore.busy_answers = 1
        await gate.ask(PROMPT, 8)
        await until(lambda: len(kvstore.stored) == 8)

    assert [len(offer) for offer in kvstore.offers] == [6, 8]
