"""The scheduler over real gRPC, with scripted runners at the other side."""

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from polling import until
from prometheus_client import CollectorRegistry
from scheduler_client import LENGTH, STOP, gateway
from scheduler_process import LocalScheduler, local_scheduler
from scripted_engine import counting_script
from scripted_runner import ScriptedRunner, scripted_hello

from headrace.v1 import scheduler_pb2 as pb
from headrace.v1 import step_pb2
from services.common.errors import from_rpc_error
from services.common.grpc_options import open_channel
from services.scheduler.config import SchedulerConfig

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13]


def alone(prompt: list[int], count: int) -> list[int]:
    known = list(prompt)
    for _ in range(count):
        known.append(counting_script("", known))
    return known[len(prompt) :]


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"headrace_scheduler_{name}", labels) or 0.0


def used_blocks(scheduler: LocalScheduler) -> int:
    return sum(session.pool.used for session in scheduler.parts.fleet.sessions)


async def test_a_request_streams_its_tokens_and_ends_with_usage_and_timing(folder: Path) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address),
        gateway(scheduler.address) as gate,
    ):
        answer = await gate.ask(PROMPT, 20)

        assert answer.token_ids == alone(PROMPT, 20)
        assert answer.last.finish_reason == LENGTH
        assert (answer.last.usage.prompt_tokens, answer.last.usage.completion_tokens) == (9, 20)
        assert answer.last.timing.total.ToNanoseconds() >= answer.last.timing.time_to_first_token.ToNanoseconds() > 0
        assert answer.messages[0].runner_id == "runner-0"
        assert not answer.messages[1].model


async def test_health_is_serving_exactly_while_a_runner_is_attached(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, open_channel(scheduler.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def becomes(status: int) -> None:
            async with asyncio.timeout(5):
                async for seen in stub.Watch(health_pb2.HealthCheckRequest()):
                    if seen.status == status:
                        return

        await becomes(health_pb2.HealthCheckResponse.NOT_SERVING)
        async with ScriptedRunner(scheduler.address):
            await becomes(health_pb2.HealthCheckResponse.SERVING)
        await becomes(health_pb2.HealthCheckResponse.NOT_SERVING)


async def test_a_closed_stream_frees_its_blocks_within_a_second(folder: Path) -> None:
    """CAN-1, OBS-1."""
    async with local_scheduler(folder) as scheduler, ScriptedRunner(scheduler.address) as runner:
        async with gateway(scheduler.address) as gate:
            calls = [await gate.open([number + 5] * 8, 200, cache_policy=3) for number in range(6)]
            await gate.read(calls[0], tokens=3)
            await until(lambda: scheduler.parts.admission.open_requests == 6)
            for call in calls:
                call.cancel()
            await until(lambda: used_blocks(scheduler) == 0, seconds=1.0)
            await until(lambda: runner.engine.sequences == {}, seconds=1.0)

        assert sample(scheduler.registry, "requests_total", finish_reason="cancelled") == 6
        assert sample(scheduler.registry, "running_requests", runner="runner-0") == 0
        assert sample(scheduler.registry, "kv_usage_ratio", runner="runner-0") == 0
        assert sum(sample(scheduler.registry, "queue_length", priority=str(level)) for level in range(10)) == 0


async def test_a_deadline_ends_the_request_with_that_status(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, ScriptedRunner(scheduler.address) as runner:
        runner.is_open.clear()
        async with gateway(scheduler.address) as gate:
            call = await gate.open(PROMPT, 100, timeout=0.3)
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await gate.read(call)
            assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await until(lambda: used_blocks(scheduler) == 0, seconds=1.0)
        assert sample(scheduler.registry, "requests_total", finish_reason="deadline") == 1
        runner.is_open.set()


async def test_a_stop_choice_ends_the_request_with_stop_and_its_usage(folder: Path) -> None:
    """STOP-6."""
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address) as runner,
        gateway(scheduler.address) as gate,
    ):
        call = await gate.open(PROMPT, 200)
        first = await gate.read(call, tokens=5)
        runner.is_open.clear()
        await call.write(pb.SubmitRequest(stop=pb.StopChoice()))
        rest = await gate.read(call)
        runner.is_open.set()
        await until(lambda: runner.engine.sequences == {})

        assert rest.last.finish_reason == STOP
        assert rest.last.usage.completion_tokens == len(first.token_ids) + len(rest.token_ids)


async def test_a_half_closed_stream_goes_on_to_its_end(folder: Path) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address),
        gateway(scheduler.address) as gate,
    ):
        call = await gate.open(PROMPT, 20)
        await call.done_writing()

        assert (await gate.read(call)).token_ids == alone(PROMPT, 20)


async def test_a_killed_runners_request_goes_on_at_the_next_one_without_a_gap(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, gateway(scheduler.address) as gate:
        first = ScriptedRunner(scheduler.address)
        async with first:
            await first.attached.wait()
            call = await gate.open(PROMPT, 60)
            before = await gate.read(call, tokens=5)
            first.is_open.clear()
        async with ScriptedRunner(scheduler.address, scripted_hello("runner-1")):
            after = await gate.read(call)

        assert before.token_ids + after.token_ids == alone(PROMPT, 60)
        assert after.last.usage.recomputed_tokens > 0
        assert sample(scheduler.registry, "runner_losses_total") >= 1


async def test_a_broken_stream_comes_back_with_a_new_epoch_and_an_empty_pool(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, ScriptedRunner(scheduler.address) as runner:
        async with gateway(scheduler.address) as gate:
            await gate.ask(PROMPT, 5)
            runner.break_stream()
            await until(lambda: len(runner.epochs) == 2)
            again = await gate.ask(PROMPT, 5)

        assert runner.epochs[1] > runner.epochs[0]
        assert again.last.usage.cached_tokens_l1 == 0
        assert again.token_ids == alone(PROMPT, 5)


async def test_messages_of_another_epoch_are_dropped_and_counted(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, ScriptedRunner(scheduler.address) as runner:
        await runner.attached.wait()
        stale = step_pb2.StepResult(epoch=99, step=1, slots=[0], token_ids=[7])
        await runner.say(step_pb2.AttachRequest(result=stale))
        await until(lambda: sample(scheduler.registry, "stale_messages_total") == 1)
        async with gateway(scheduler.address) as gate:
            assert (await gate.ask(PROMPT, 8)).token_ids == alone(PROMPT, 8)


async def test_a_silent_runner_is_given_up_and_its_request_goes_on_elsewhere(folder: Path) -> None:
    config = SchedulerConfig(kvstore=None, heartbeat_seconds=0.1)
    async with local_scheduler(folder, config) as scheduler, ScriptedRunner(scheduler.address) as hung:
        await hung.attached.wait()
        async with gateway(scheduler.address) as gate:
            call = await gate.open(PROMPT, 40)
            before = await gate.read(call, tokens=3)
            hung.is_open.clear()
            hung.sends_heartbeats = False
            async with ScriptedRunner(scheduler.address, scripted_hello("runner-1")) as other:
                after = await gate.read(call)
                assert other.engine.computed_tokens
            hung.is_open.set()

        assert before.token_ids + after.token_ids == alone(PROMPT, 40)


async def test_a_long_step_does_not_look_like_a_lost_runner(folder: Path) -> None:
    config = SchedulerConfig(kvstore=None, heartbeat_seconds=0.1)
    async with local_scheduler(folder, config) as scheduler, ScriptedRunner(scheduler.address) as runner:
        await runner.attached.wait()
        runner.is_open.clear()
        async with gateway(scheduler.address) as gate:
            call = await gate.open(PROMPT, 10)
            await until(lambda: bool(runner.plans))
            sent = runner.heartbeats_sent
            # Three to the interval, three intervals to the limit: two limits long without a step.
            await until(lambda: runner.heartbeats_sent >= sent + 18)
            runner.is_open.set()
            assert (await gate.read(call)).token_ids == alone(PROMPT, 10)
        assert len(runner.epochs) == 1


async def test_a_runner_that_breaks_the_protocol_is_sent_away_with_the_reason(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, open_channel(scheduler.address) as channel:
        from headrace.v1.scheduler_pb2_grpc import SchedulerServiceStub

        stub: pb.SchedulerServiceStub = SchedulerServiceStub(channel)  # type: ignore[name-defined]
        call = stub.Attach()
        await call.write(step_pb2.AttachRequest(hello=scripted_hello()))
        epoch = (await call.read()).attached.epoch
        await call.write(step_pb2.AttachRequest(result=step_pb2.StepResult(epoch=epoch, step=5)))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call.read()
        assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        empty = stub.Attach()
        await empty.write(step_pb2.AttachRequest(hello=step_pb2.RunnerHello(runner_id="x")))
        with pytest.raises(grpc.aio.AioRpcError, match=r"model\.name"):
            await empty.read()


async def test_a_request_waits_for_the_first_runner_and_is_checked_when_it_comes(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, gateway(scheduler.address) as gate:
        right, wrong = await gate.open(PROMPT, 5), await gate.open(PROMPT, 5, model="other")
        await until(lambda: len(scheduler.parts.queue) == 2)
        async with ScriptedRunner(scheduler.address):
            assert (await gate.read(right)).token_ids == alone(PROMPT, 5)
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await gate.read(wrong)
        assert failure.value.code() is grpc.StatusCode.NOT_FOUND


async def test_without_any_runner_for_too_long_the_answer_is_unavailable_with_a_retry_hint(folder: Path) -> None:
    config = SchedulerConfig(kvstore=None, runner_wait_seconds=0.2)
    async with local_scheduler(folder, config) as scheduler, gateway(scheduler.address) as gate:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await gate.ask(PROMPT, 5)
        error = from_rpc_error(failure.value)
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert error.reason == "NO_RUNNER"
        assert error.retry_after_seconds


async def test_a_failed_sequence_is_an_error_and_its_neighbour_goes_on(folder: Path) -> None:
    """SMP-8."""
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address) as runner,
        gateway(scheduler.address) as gate,
    ):
        bad, good = await gate.open(PROMPT, 90, request_id="bad"), await gate.open([9] * 5, 90, request_id="good")
        await gate.read(bad, tokens=3)
        runner.engine.failing.add("bad")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await gate.read(bad)
        assert from_rpc_error(failure.value).reason == "GENERATION_FAILED"
        assert (await gate.read(good)).token_ids == alone([9] * 5, 90)


async def test_a_slow_reader_costs_the_others_nothing_and_loses_nothing(folder: Path) -> None:
    """GRPC-9."""
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address),
        gateway(scheduler.address) as gate,
    ):
        slow = await gate.open([5] * 4, 200)
        await until(lambda: sample(scheduler.registry, "requests_total", finish_reason="length") == 1)
        assert (await gate.ask(PROMPT, 30)).token_ids == alone(PROMPT, 30)
        answer = await gate.read(slow)
        assert answer.token_ids == alone([5] * 4, 200)


async def test_loads_tell_what_runs_and_what_waits(folder: Path) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address, scripted_hello(sequence_slots=1)) as runner,
        gateway(scheduler.address) as gate,
    ):
        await runner.attached.wait()
        calls = [await gate.open(PROMPT, 200), await gate.open(PROMPT, 2)]
        await gate.read(calls[0], tokens=1)
        await until(lambda: len(scheduler.parts.queue) == 1)
        loads = await gate.stub.GetLoads(pb.GetLoadsRequest())
        (load,) = loads.runners

        assert (load.running_requests, loads.queued_requests) == (1, 1)
        assert load.used_blocks > 0
        assert load.request_tokens_limit == 256
        assert load.model.name == "scripted"
        for call in calls:
            call.cancel()
        await until(lambda: used_blocks(scheduler) == 0, seconds=1.0)
