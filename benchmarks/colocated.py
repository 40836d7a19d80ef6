"""The control arm: the scheduler's loop and the runner's engine joined in one process, without gRPC, gateway or text.

Reads a line on standard input for each run and answers with one line of JSON, so that a caller can interleave it with
another arm: python -m benchmarks.colocated --model DIR
"""

import argparse
import asyncio
import json
import sys
import time
import uuid
from collections.abc import Mapping

import uvloop
from prometheus_client import CollectorRegistry

from benchmarks.load import Workload
from headrace.v1.generation_pb2 import SamplingParams
from services.common.config import ProcessConfig
from services.runner.build import ReadyEngine, build_engine
from services.runner.config import RunnerConfig
from services.runner.device import Device, count_cores, open_device
from services.runner.load_progress import LoadProgress
from services.runner.plan_executor import Attachment, ModelThread, NoTransfers, PlanExecutor
from services.runner.step import StepOutcome
from services.runner.step_messages import Introduction, hello_to_proto, plan_from_proto, result_to_proto
from services.scheduler.__main__ import build_parts
from services.scheduler.batch import BatchPlanner, BatchRules
from services.scheduler.config import SchedulerConfig
from services.scheduler.loop import LoopSurroundings, StepLoop
from services.scheduler.messages import identity_from, outcome_from, plan_message
from services.scheduler.request import CachePolicy, Request, RequestSpec
from services.scheduler.runner_session import RunnerSession
from services.scheduler.service_parts import ServiceParts
from services.scheduler.step_plan import Plan


class Colocated:
    """One scheduler with one engine, passing plans and results by reference."""

    def __init__(self, ready: ReadyEngine, config: RunnerConfig, device: Device, thread: ModelThread) -> None:
        self._device = device
        self._executor = PlanExecutor(ready.engine, NoTransfers(), thread)
        self._parts: ServiceParts = build_parts(SchedulerConfig(kvstore=None), ProcessConfig(), CollectorRegistry())
        introduction = Introduction(
            config.id, uuid.uuid4().hex, "", config.step_tokens, config.sequence_slots, has_l2=False
        )
        hello = hello_to_proto(introduction, ready.identity)
        self._session: RunnerSession = self._parts.fleet.attach(identity_from(hello.hello), time.monotonic())
        self._attachment = Attachment(self._session.epoch, lambda report: None)
        self._answering: set[asyncio.Task[None]] = set()

    def start(self) -> asyncio.Task[None]:
        """Runs the step loop until the task is cancelled."""
        parts = self._parts
        rules = BatchRules(parts.config.load_seconds, parts.fleet.is_elsewhere, parts.fleet.wake_others)
        planner = BatchPlanner(self._session, parts.queue, rules)
        loop = StepLoop(self._session, planner, self._send, LoopSurroundings(parts.second_level, parts.metrics))
        return asyncio.create_task(loop.run())

    async def _send(self, plan: Plan) -> None:
        order = plan_from_proto(plan_message(plan, self._session.epoch).plan)
        task = asyncio.create_task(self._answer(self._executor.submit(order, self._attachment)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, future: asyncio.Future[StepOutcome | None]) -> None:
        outcome = await future
        assert outcome is not None  # the attachment is never closed
        result = result_to_proto(outcome, self._session.epoch, self._device.read())
        self._session.hear(outcome_from(result.result))

    async def run(self, workload: Workload) -> dict[str, float]:
        """Sends all requests at once and waits for the last one."""
        started = time.perf_counter()
        requests = [self._submit(prompt, workload) for prompt in workload.prompts()]
        await asyncio.gather(*(self._finish(request) for request in requests))
        wall = time.perf_counter() - started
        tokens = sum(request.output_tokens for request in requests)
        return {"output_tokens": tokens, "wall": wall, "tokens_per_second": tokens / wall}

    def _submit(self, prompt: list[int], workload: Workload) -> Request:
        spec = RequestSpec(
            request_id=uuid.uuid4().hex,
            prompt=tuple(prompt),
            max_tokens=workload.output_tokens,
            sampling=SamplingParams(temperature=0.0).SerializeToString(),
            ignore_eos=True,
            cache_policy=CachePolicy.BYPASS,
        )
        request = self._parts.admission.admit(spec, lambda stage: None, time.monotonic())
        self._parts.admission.enqueue(request, time.monotonic())
        return request

    async def _finish(self, request: Request) -> None:
        is_last = False
        while not is_last:
            _tokens, is_last = await request.outbox.take()
        self._parts.admission.forget(request)


async def main(arguments: argparse.Namespace) -> None:
    """Builds the engine, says that it is ready, and runs once for every line of input."""
    config = RunnerConfig(model=arguments.model)
    device = open_device(config.device)
    thread = ModelThread(config.threads or count_cores())
    ready = await thread.run(lambda: build_engine(config, device, LoadProgress(config.model)))
    workload = Workload(
        arguments.concurrency, arguments.prompt_tokens, arguments.output_tokens, ready.identity.vocabulary_size
    )
    joined = Colocated(ready, config, device, thread)
    loop = joined.start()
    answer({"ready": True, "vocabulary_size": ready.identity.vocabulary_size})
    while await asyncio.to_thread(sys.stdin.readline):
        answer(await joined.run(workload))
    loop.cancel()
    thread.close()


def answer(message: Mapping[str, object]) -> None:
    """Writes one line for the caller."""
    print("COLOCATED " + json.dumps(message), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
