"""A closed-loop load over the public gRPC API: so many requests at once, each of a given length."""

import asyncio
import dataclasses
import random
import time

import grpc

from headrace.v1 import generation_pb2, inference_pb2, inference_pb2_grpc


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What every request looks like; lengths in tokens."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    vocabulary_size: int
    seed: int = 0

    def prompts(self) -> list[list[int]]:
        """Returns distinct random prompts, the same ones for the same seed."""
        numbers = random.Random(self.seed)
        # Low ids are often special tokens.
        return [
            [
                numbers.randrange(min(300, self.vocabulary_size // 2), self.vocabulary_size)
                for _ in range(self.prompt_tokens)
            ]
            for _ in range(self.concurrency)
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadReport:
    """One run; times in seconds."""

    output_tokens: int
    wall: float
    first_token: list[float]

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second over the whole run, prefill included."""
        return self.output_tokens / self.wall


async def run_load(address: str, workload: Workload) -> LoadReport:
    """Sends all requests at once and waits for the last one."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        started = time.perf_counter()
        results = await asyncio.gather(*(_one(stub, prompt, workload, started) for prompt in workload.prompts()))
        wall = time.perf_counter() - started
    return LoadReport(sum(tokens for tokens, _ in results), wall, [first for _, first in results])


async def _one(
    stub: "inference_pb2_grpc.InferenceServiceAsyncStub", prompt: list[int], workload: Workload, started: float
) -> tuple[int, float]:
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(token_ids=inference_pb2.TokenIds(ids=prompt)),
        sampling=generation_pb2.SamplingParams(temperature=0.0),
        stop=generation_pb2.StopCondition(max_tokens=workload.output_tokens, ignore_eos=True),
        options=inference_pb2.RequestOptions(cache_policy=generation_pb2.CACHE_POLICY_BYPASS),
    )
    first: float | None = None
    completion_tokens = 0
    async for chunk in stub.StreamGenerate(request, timeout=600):
        first = time.perf_counter() - started if first is None else first
        if chunk.HasField("usage"):
            completion_tokens = chunk.usage.completion_tokens
    if completion_tokens != workload.output_tokens or first is None:
        raise RuntimeError(f"a request ended with {completion_tokens} of {workload.output_tokens} tokens")
    return completion_tokens, first
