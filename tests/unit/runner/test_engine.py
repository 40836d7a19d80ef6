"""The engine at its edges: slots used again, steps wasted, sequences that fail, plans that are wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from engine_driver import GREEDY, EngineDriver, Job

from services.runner.engine import Engine
from services.runner.model_loader import LoadedModel
from services.runner.step import FailureReason, NewSequence, PlanError, Sampling, SequenceWork, StepOrder

POISON = 299


def new_sequence(slot: int, tokens: list[int], blocks: list[int], sampling: Sampling = GREEDY) -> NewSequence:
    """Returns a sequence whose prompt is all its tokens."""
    return NewSequence(slot, f"request-{slot}", tuple(tokens), len(tokens), 0, tuple(blocks), sampling)


def greedy_output(engine: Engine, prompt: list[int], tokens: int) -> list[int]:
    """Runs one request alone."""
    job = Job(prompt, tokens)
    EngineDriver(engine).run([job])
    return job.output


@pytest.fixture
def poisoned(loaded_model: Callable[[str], LoadedModel]) -> Iterator[None]:
    """Makes one token's embedding NaN: a prompt that holds it has NaN scores."""
    embedding = loaded_model("tiny-qwen2").module.get_input_embeddings()
    original = embedding.weight.data[POISON].clone()
    embedding.weight.data[POISON] = float("nan")
    yield
    embedding.weight.data[POISON] = original


def test_a_slot_and_its_blocks_serve_a_new_sequence_in_the_same_plan(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-llama")
    expected = greedy_output(make_engine("tiny-llama"), [9, 8, 7], 1)
    engine.execute(StepOrder(1, new_sequences=(new_sequence(0, [1, 2, 3, 4], [5]),), work=(SequenceWork(0, 4),)))
    outcome = engine.execute(
        StepOrder(
            2,
            finished_slots=(0,),
            new_sequences=(new_sequence(0, [9, 8, 7], [5]),),
            work=(SequenceWork(0, 3),),
        )
    )
    assert [outcome.token_ids[0]] == expected


def test_a_step_planned_before_the_end_was_known_is_wasted_and_harms_nobody(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-llama")
    expected = greedy_output(make_engine("tiny-llama"), [5, 6], 3)
    first = new_sequence(0, [1, 2, 3], [0])
    second = new_sequence(1, [5, 6], [1])
    output = []
    orders = [
        StepOrder(1, new_sequences=(first, second), work=(SequenceWork(0, 3), SequenceWork(1, 2))),
        StepOrder(2, work=(SequenceWork(0, 1), SequenceWork(1, 1))),
        StepOrder(3, finished_slots=(0,), work=(SequenceWork(1, 1),)),
    ]
    for order in orders:
        output.append(engine.execute(order).token_ids[1])
    assert output == expected


def test_a_plan_without_work_is_answered_at_once(make_engine: Callable[..., Engine]) -> None:
    outcome = make_engine("tiny-llama").execute(StepOrder(7))
    assert (outcome.step, outcome.token_ids, outcome.batch_tokens) == (7, {}, 0)


def test_tokens_emitted_before_a_preemption_count_as_known_and_as_output(make_engine: Callable[..., Engine]) -> None:
    """SCH-4: the draws go on where they stopped."""
    sampling = Sampling(temperature=1.0, seed=11)
    whole = Job([3, 1, 4, 1, 5], 8, sampling)
    EngineDriver(make_engine("tiny-llama")).run([whole])
    resumed = NewSequence(0, "again", (*whole.prompt, *whole.output[:5]), 5, 0, (0,), sampling)
    engine = make_engine("tiny-llama")
    output = [engine.execute(StepOrder(1, new_sequences=(resumed,), work=(SequenceWork(0, 10),))).token_ids[0]]
    for step in (2, 3):
        output.append(engine.execute(StepOrder(step, work=(SequenceWork(0, 1),))).token_ids[0])
    assert output == whole.output[5:]


def test_a_seeded_request_draws_the_same_alone_and_in_any_company(make_engine: Callable[..., Engine]) -> None:
    """SMP-1."""

    def seeded() -> Job:
        return Job([7, 7, 3], 12, Sampling(temperature=0.8, top_p=0.9, seed=42))

    alone = seeded()
    EngineDriver(make_engine("tiny-llama")).run([alone])
    for others in ([Job([1], 9, Sampling(seed=5))], [Job([2] * 40, 20), Job([3], 2, Sampling(top_k=5, seed=1))]):
        job = seeded()
        EngineDriver(make_engine("tiny-llama")).run([*others, job], step_tokens=20)
        assert job.output == alone.output


@pytest.mark.usefixtures("poisoned")
def test_nan_scores_end_their_own_sequence_only(make_engine: Callable[..., Engine]) -> None:
    """SMP-8: no token comes from the bad row, and the neighbour gets what it gets alone."""
    healthy, alone = Job([1, 2, 3], 10), Job([1, 2, 3], 10)
    sick = Job([4, POISON, 6], 10)
    EngineDriver(make_engine("tiny-qwen2")).run([alone])
    EngineDriver(make_engine("tiny-qwen2")).run([healthy, sick])
    assert healthy.output == alone.output
    assert sick.output == []
    assert sick.failure is not None
    assert sick.failure.reason is FailureReason.NAN_LOGITS


@pytest.mark.usefixtures("poisoned")
def test_work_planned_ahead_for_a_failed_sequence_is_void(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-qwen2")
    sick, healthy = new_sequence(0, [POISON, 1], [0]), new_sequence(1, [5], [1])
    first = engine.execute(StepOrder(1, new_sequences=(sick, healthy), work=(SequenceWork(0, 2), SequenceWork(1, 1))))
    second = engine.execute(StepOrder(2, work=(SequenceWork(0, 1, (2,)), SequenceWork(1, 1))))
    third = engine.execute(StepOrder(3, finished_slots=(0,)))
    assert [failure.slot for failure in first.failures] == [0]
    assert (list(second.token_ids), second.failures, third.failures) == ([1], (), ())


@pytest.mark.usefixtures("poisoned")
def test_a_block_that_held_nan_is_clean_for_its_next_owner(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-qwen2", block_count=8)
    expected = greedy_output(make_engine("tiny-qwen2"), [1, 2, 3], 6)
    sick = new_sequence(0, [POISON] * 16, [3])
    engine.execute(StepOrder(1, new_sequences=(sick,), work=(SequenceWork(0, 16),)))
    healthy = new_sequence(0, [1, 2, 3], [3])
    output = [
        engine.execute(
            StepOrder(2, finished_slots=(0,), new_sequences=(healthy,), work=(SequenceWork(0, 3),))
        ).token_ids[0]
    ]
    for step in range(3, 8):
        output.append(engine.execute(StepOrder(step, work=(SequenceWork(0, 1),))).token_ids[0])
    assert output == expected


def test_sequences_of_very_different_lengths_are_padded_apart_and_answer_as_alone(
    make_engine: Callable[..., Engine],
) -> None:
    prompts = [[position % 290 for position in range(start, start + length)] for start, length in ((0, 200), (5, 90))]
    prompts += [[7], [8, 9], list(range(30))]
    expected = [greedy_output(make_engine("tiny-gemma2"), prompt, 5) for prompt in prompts]
    jobs = [Job(prompt, 5) for prompt in prompts]
    EngineDriver(make_engine("tiny-gemma2")).run(jobs)
    assert [job.output for job in jobs] == expected


def test_a_whole_context_fits(make_engine: Callable[..., Engine]) -> None:
    job = Job([1] * 250, 6)
    EngineDriver(make_engine("tiny-llama")).run([job], step_tokens=64)
    assert len(job.output) == 6


WRONG_PLANS = {
    "a slot that is not there": StepOrder(2, new_sequences=(new_sequence(99, [1], [1]),)),
    "a slot that is taken": StepOrder(2, new_sequences=(new_sequence(0, [1], [1]),)),
    "a slot that nobody has": StepOrder(2, work=(SequenceWork(3, 1),)),
    "an end of nothing": StepOrder(2, finished_slots=(3,)),
    "more tokens than are known": StepOrder(2, work=(SequenceWork(0, 2),)),
    "no tokens": StepOrder(2, work=(SequenceWork(0, 0),)),
    "too few blocks": StepOrder(2, new_sequences=(new_sequence(1, [1] * 17, [1]),), work=(SequenceWork(1, 17),)),
    "a block beyond the pool": StepOrder(2, new_sequences=(new_sequence(1, [1], [10_000]),)),
    "more blocks than a context": StepOrder(2, new_sequences=(new_sequence(1, [1], list(range(17))),)),
    "two pieces of work": StepOrder(2, work=(SequenceWork(0, 1), SequenceWork(0, 1))),
    "nothing left to compute": StepOrder(2, new_sequences=(NewSequence(1, "r", (1, 2), 2, 2, (1,), GREEDY),)),
}


@pytest.mark.parametrize("order", WRONG_PLANS.values(), ids=WRONG_PLANS)
def test_a_plan_that_contradicts_the_engine_is_refused(order: StepOrder, make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-llama")
    engine.execute(StepOrder(1, new_sequences=(new_sequence(0, [1, 2], [0]),), work=(SequenceWork(0, 2),)))
    with pytest.raises(PlanError):
        engine.execute(order)


def test_a_reset_engine_takes_every_slot_again(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine("tiny-llama")
    engine.execute(StepOrder(1, new_sequences=(new_sequence(0, [1, 2], [0]),)))
    engine.reset()
    assert engine.sequences == 0
    engine.execute(StepOrder(1, new_sequences=(new_sequence(0, [1, 2], [0]),), work=(SequenceWork(0, 2),)))


def test_the_built_in_model_answers_as_transformers_does(make_engine: Callable[..., Engine]) -> None:
    """Skipped where the model's folder is not there."""
    folder = Path(__file__).parents[3] / "models" / "headrace-tiny"
    if not (folder / "model.safetensors").is_file():
        pytest.skip("models/headrace-tiny is not there")
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is a KV cache?"}], add_generation_prompt=True, return_dict=False
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=40)[0, len(prompt) :].tolist()
    job = Job(list(prompt), len(expected))
    EngineDriver(make_engine(str(folder))).run([job], step_tokens=8)
    assert job.output == expected
