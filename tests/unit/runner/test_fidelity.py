"""Greedy output equals transformers' own generate, token for token, however the work is cut and batched."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from engine_driver import EngineDriver, Job

from services.runner.engine import Engine

SHAPES = ["tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-gemma2", "tiny-gpt-neox"]
OUTPUT_TOKENS = 20
# Around the edges of a block of 16 and of a window of 24.
LENGTHS = [1, 2, 15, 16, 17, 23, 24, 25, 33, 63, 64, 65]


def prompts() -> list[list[int]]:
    """Returns one random prompt for each length."""
    generator = random.Random(1)
    return [[generator.randrange(300) for _ in range(length)] for length in LENGTHS]


@pytest.fixture(scope="session")
def expected(model_folder: Callable[[str], Path]) -> Callable[[str], list[list[int]]]:
    """Generates with transformers, once for each shape."""
    known: dict[str, list[list[int]]] = {}

    def generate(shape: str) -> list[list[int]]:
        if shape not in known:
            model = transformers.AutoModelForCausalLM.from_pretrained(model_folder(shape), dtype=torch.float32)
            known[shape] = [_generate(model, prompt) for prompt in prompts()]
        return known[shape]

    return generate


def _generate(model: transformers.PreTrainedModel, prompt: list[int]) -> list[int]:
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=OUTPUT_TOKENS,
        min_new_tokens=OUTPUT_TOKENS,
        eos_token_id=None,
    )
    return ids[0, len(prompt) :].tolist()


def jobs() -> list[Job]:
    """Returns one greedy job for each prompt."""
    return [Job(prompt, OUTPUT_TOKENS) for prompt in prompts()]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_request_alone_equals_transformers(
    shape: str, make_engine: Callable[..., Engine], expected: Callable[[str], list[list[int]]]
) -> None:
    for job, output in zip(jobs(), expected(shape), strict=True):
        EngineDriver(make_engine(shape)).run([job])
        assert job.output == output


@pytest.mark.parametrize("step_tokens", [512, 13])
@pytest.mark.parametrize("shape", SHAPES)
def test_batched_and_chunked_requests_equal_transformers(
    shape: str, step_tokens: int, make_engine: Callable[..., Engine], expected: Callable[[str], list[list[int]]]
) -> None:
    batch = jobs()
    EngineDriver(make_engine(shape, slots=len(batch))).run(batch, step_tokens)
    assert [job.output for job in batch] == expected(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_prefix_left_in_the_pool_gives_the_same_output_as_a_cold_start(
    shape: str, make_engine: Callable[..., Engine], expected: Callable[[str], list[list[int]]]
) -> None:
    """KV-4, KV-11: also beyond a sliding window."""
    driver = EngineDriver(make_engine(shape, slots=len(LENGTHS), block_count=160))
    cold = jobs()
    driver.run(cold)
    warm = []
    for job in cold:
        blocks = (len(job.prompt) - 1) // 16
        warm.append(Job(job.prompt, OUTPUT_TOKENS, block_ids=job.block_ids[:blocks], computed_tokens=blocks * 16))
    driver.run(warm, step_tokens=40)
    assert [job.output for job in warm] == expected(shape)
