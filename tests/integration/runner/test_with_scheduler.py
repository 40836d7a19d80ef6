"""A real runner process under the real scheduler."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import transformers
from conftest import generate
from kvstore_harness import serving
from runner_process import RunnerProcess
from scheduler_process import LocalScheduler, local_scheduler
from valkey_server import ValkeyServer

from headrace.v1 import generation_pb2, scheduler_pb2, scheduler_pb2_grpc
from services.common.grpc_options import open_channel
from services.scheduler.config import SchedulerConfig

PROMPT = [5 + position % 290 for position in range(70)]
PATIENT = {"heartbeat_seconds": 5.0, "lookup_seconds": 5.0, "load_seconds": 10.0}


async def submit(address: str, prompt: list[int], tokens: int, **fields: Any) -> tuple[list[int], Any]:
    """Returns an answer's tokens and usage."""
    values: dict[str, Any] = {
        "request_id": f"r{fields.get('seed', 0)}",
        "tenant_namespace": "tenant",
        "choices": 1,
        "ignore_eos": True,
        "sampling": generation_pb2.SamplingParams(temperature=0.0),
        **fields,
    }
    start = scheduler_pb2.SubmitStart(prompt_token_ids=prompt, max_tokens=tokens, **values)
    ids: list[int] = []
    usage = None
    async with open_channel(address) as channel:
        call: Any = scheduler_pb2_grpc.SchedulerServiceStub(channel).Submit(timeout=120)
        await call.write(scheduler_pb2.SubmitRequest(start=start))
        while (message := await call.read()) is not grpc.aio.EOF:
            ids.extend(message.token_ids)
            usage = message.usage if message.HasField("usage") else usage
    return ids, usage


async def until_attached(scheduler: LocalScheduler, runners: int = 1) -> None:
    """Waits until so many runners are attached."""
    async with asyncio.timeout(90):
        while len(scheduler.parts.fleet.sessions) != runners:  # noqa: ASYNC110 - a state, not an event
            await asyncio.sleep(0.02)


async def test_sixteen_requests_at_once_answer_as_transformers_does(
    tiny_model: Path, short_folder: Path, reference: transformers.PreTrainedModel
) -> None:
    prompts = [PROMPT[:length] for length in range(1, 65, 4)]
    config = SchedulerConfig(kvstore=None, heartbeat_seconds=5.0)
    async with local_scheduler(short_folder, config) as scheduler:
        runner = RunnerProcess(short_folder, tiny_model, scheduler.address, STEP_TOKENS="64")
        try:
            await until_attached(scheduler)
            answers = await asyncio.gather(
                *(submit(scheduler.address, prompt, 24, seed=place) for place, prompt in enumerate(prompts))
            )
        finally:
            runner.kill()
    assert [ids for ids, _ in answers] == [generate(reference, prompt, 24) for prompt in prompts]


async def test_a_killed_runner_is_replaced_and_its_blocks_come_back_from_redis(
    tiny_model: Path, short_folder: Path, valkey: ValkeyServer
) -> None:
    async with serving(short_folder, valkey.url) as kvstore_stub:
        kvstore = next(short_folder.glob("k*.sock"))  # noqa: ASYNC240 - a folder with three files
        config = SchedulerConfig(kvstore=f"unix:{kvstore}", **PATIENT)
        async with local_scheduler(short_folder, config) as scheduler:
            first = RunnerProcess(short_folder, tiny_model, scheduler.address, REDIS_URL=valkey.url)
            await until_attached(scheduler)
            cold, cold_usage = await submit(scheduler.address, PROMPT, 12)
            await stored(kvstore_stub, blocks=(len(PROMPT) - 1) // 16)
            first.kill()
            await until_attached(scheduler, 0)
            second = RunnerProcess(short_folder, tiny_model, scheduler.address, REDIS_URL=valkey.url)
            try:
                await until_attached(scheduler)
                warm, warm_usage = await submit(scheduler.address, PROMPT, 12, seed=1)
            finally:
                second.kill()
    assert warm == cold
    assert (cold_usage.cached_tokens_l1, cold_usage.cached_tokens_l2) == (0, 0)
    assert (warm_usage.cached_tokens_l1, warm_usage.cached_tokens_l2) == (0, 64)


async def stored(kvstore: Any, blocks: int) -> None:
    """Waits until so many blocks are visible in the kvstore."""
    async with asyncio.timeout(30):
        while (await kvstore.usage("tenant")).blocks < blocks:  # noqa: ASYNC110 - a state, not an event
            await asyncio.sleep(0.02)


async def test_a_request_outlives_its_killed_runner(
    tiny_model: Path, short_folder: Path, reference: transformers.PreTrainedModel
) -> None:
    config = SchedulerConfig(kvstore=None, heartbeat_seconds=5.0)
    async with local_scheduler(short_folder, config) as scheduler:
        first = RunnerProcess(short_folder, tiny_model, scheduler.address)
        await until_attached(scheduler)
        asking = asyncio.create_task(submit(scheduler.address, PROMPT[:30], 200))
        session = scheduler.parts.fleet.sessions[0]
        async with asyncio.timeout(60):
            while not session.running or session.running[0].computed < 60:  # noqa: ASYNC110 - a state, not an event
                await asyncio.sleep(0.001)
        first.kill()
        second = RunnerProcess(short_folder, tiny_model, scheduler.address)
        try:
            ids, usage = await asking
        finally:
            second.kill()
    assert ids == generate(reference, PROMPT[:30], 200)
    assert usage.recomputed_tokens > 0
