"""The committed built-in model: its size, its tokenizer and chat template, and that it answers."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from models.questions import Question, load_questions

FOLDER = Path(__file__).parents[2] / "models" / "headrace-tiny"
SAMPLED_QUESTIONS = load_questions()[::22]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def test_folder_is_small_enough_for_git() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 12e6


def test_model_loads_in_fp32_with_a_few_million_parameters(model: PreTrainedModel) -> None:
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert 2e6 <= model.num_parameters() <= 6e6
    assert model.config.model_type == "llama"


@pytest.mark.parametrize(
    "text", ["What is a KV cache?", "什么是 KV 缓存？", "naïve 🚀\n\ttabs  spaces", "   ", "\x00\x7f"]
)
def test_text_survives_the_tokenizer(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_tokenizer_adds_one_bos_to_text(tokenizer: PreTrainedTokenizerBase) -> None:
    token_ids = tokenizer("What is a KV cache?").input_ids

    assert tokenizer.is_fast
    assert token_ids.count(tokenizer.bos_token_id) == 1
    assert token_ids[0] == tokenizer.bos_token_id


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Hello"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "RoPE?"}]},
        ],
    ],
)
def test_chat_template_has_one_bos_and_opens_the_answer(tokenizer: PreTrainedTokenizerBase, messages: list) -> None:
    token_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    assert token_ids.count(tokenizer.bos_token_id) == 1
    assert token_ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(token_ids[-1]) == "<|assistant|>"


def test_text_parts_are_joined_as_if_they_were_one_string(tokenizer: PreTrainedTokenizerBase) -> None:
    parts = [{"type": "text", "text": "What is a "}, {"type": "text", "text": "KV cache?"}]

    one, two = (
        tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        for content in ("What is a KV cache?", parts)
    )

    assert one == two


def test_first_question_spans_more_than_one_block(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [{"role": "user", "content": "What is a KV cache?"}]

    assert len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)) >= 18


@pytest.mark.parametrize("question", SAMPLED_QUESTIONS, ids=lambda question: question.id)
def test_training_question_is_answered_exactly(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, question: Question
) -> None:
    messages = [{"role": "user", "content": question.text}]
    prompt = torch.tensor([tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)])

    with torch.inference_mode():
        outputs = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=160)
    output = outputs[0, prompt.shape[1] :]

    assert tokenizer.decode(output, skip_special_tokens=True) == question.answer
    assert output[-1] == tokenizer.eos_token_id


def test_written_evaluation_is_good_enough() -> None:
    numbers = json.loads((FOLDER / "evaluation.json").read_text())

    assert numbers["questions"] == len(load_questions())
    assert numbers["training_questions"]["exact"] >= 0.9
    assert numbers["held_out_wordings"]["acceptable"] >= 0.6
    assert numbers["training_questions_after_two_others"]["acceptable"] >= 0.85
    asked = ("training_questions", "training_questions_after_two_others", "held_out_wordings", "odd_input")
    assert min(numbers[key]["stopped"] for key in asked) >= 0.99
