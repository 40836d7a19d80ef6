"""Every field is checked: the error names the field and the limit. Zero is a value, absence is another."""

import math
from typing import Any

import pytest

from headrace.v1 import inference_pb2 as pb
from services.common.errors import InvalidRequest
from services.gateway.defaults import ModelDefaults, resolve
from services.gateway.from_proto import generation_input
from services.gateway.validation import validate, validate_token_ids


def request(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**({"prompt": pb.Prompt(text="hi")} | fields))


def message(text: str = "hi", role: int = pb.ROLE_USER) -> pb.Message:
    return pb.Message(role=role, parts=[pb.Part(text=text)])  # type: ignore[arg-type]


def chat(**fields: Any) -> pb.GenerateRequest:
    return request(prompt=pb.Prompt(messages=pb.Conversation(**({"messages": [message()]} | fields))))


def check(given: pb.GenerateRequest) -> None:
    values = generation_input(given)
    validate(values)
    validate_token_ids(values, vocabulary_size=100)


REFUSED = [
    (pb.GenerateRequest(), "prompt", "missing"),
    (request(prompt=pb.Prompt()), "prompt", "missing"),
    (request(prompt=pb.Prompt(token_ids=pb.TokenIds())), "prompt.token_ids", "at least 1"),
    (request(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[1, 100]))), "prompt.token_ids", "100 is outside"),
    (request(prompt=pb.Prompt(text="x" * (4 * 2**20 + 1))), "prompt.text", "4 MiB"),
    (request(prompt=pb.Prompt(text="é" * (2 * 2**20 + 1))), "prompt.text", "4 MiB"),
    (chat(messages=[]), "prompt.messages", "at least 1"),
    (chat(template_kwargs={"x": {"y": [math.nan]}}), "prompt.messages.template_kwargs", "not finite"),
    (chat(template_kwargs={"x": -math.inf}), "prompt.messages.template_kwargs", "not finite"),
    (chat(messages=[message()] * 4097), "prompt.messages", "at most 4096"),
    (chat(messages=[message("x" * 2**20)] * 5), "prompt.messages", "4 MiB"),
    (chat(messages=[message(role=0)]), "prompt.messages[0].role", "missing"),
    (chat(messages=[message(), message(role=77)]), "prompt.messages[1].role", "use system"),
    (chat(messages=[pb.Message(role=pb.ROLE_USER)]), "prompt.messages[0].parts", "empty"),
    (chat(messages=[pb.Message(role=pb.ROLE_USER, parts=[pb.Part()])]), "prompt.messages[0].parts", "text"),
    (chat(tools=[pb.Tool(name="f")]), "prompt.messages.tools", "not supported"),
    (
        chat(tool_choice=pb.ToolChoice(mode=pb.ToolChoice.MODE_REQUIRED)),
        "prompt.messages.tools",
        "not supported",
    ),
    (request(sampling={"temperature": -0.1}), "sampling.temperature", "from 0 to 2"),
    (request(sampling={"temperature": 2.1}), "sampling.temperature", "from 0 to 2"),
    (request(sampling={"temperature": float("nan")}), "sampling.temperature", "this number is out of range"),
    (request(sampling={"temperature": float("inf")}), "sampling.temperature", "this number is out of range"),
    (request(sampling={"top_p": 1.01}), "sampling.top_p", "from 0 to 1"),
    (request(sampling={"top_p": -0.1}), "sampling.top_p", "from 0"),
    (request(sampling={"top_k": -2}), "sampling.top_k", "-1 for off"),
    (request(sampling={"repetition_penalty": 0.0}), "sampling.repetition_penalty", "greater than 0"),
    (request(sampling={"repetition_penalty": 1.2}), "sampling.repetition_penalty", "not supported"),
    (request(sampling={"presence_penalty": 2.5}), "sampling.presence_penalty", "from -2 to 2"),
    (request(sampling={"presence_penalty": 1}), "sampling.presence_penalty", "not supported"),
    (request(sampling={"frequency_penalty": -1}), "sampling.frequency_penalty", "not supported"),
    (request(sampling={"min_p": 0.1}), "sampling.min_p", "not supported"),
    (request(sampling={"min_p": 1.1}), "sampling.min_p", "from 0 to 1"),
    (request(sampling={"typical_p": 0}), "sampling.typical_p", "greater than 0"),
    (request(sampling={"typical_p": 0.5}), "sampling.typical_p", "not supported"),
    (request(sampling={"logit_bias": {100: 5}}), "sampling.logit_bias", "100 is outside"),
    (request(sampling={"logit_bias": {99: -101}}), "sampling.logit_bias", "from -100"),
    (request(sampling={"logit_bias": {99: -100}}), "sampling.logit_bias", "not supported"),
    (request(sampling={"allowed_token_ids": [1]}), "sampling.allowed_token_ids", "not supported"),
    (request(sampling={"bad_words": ["x"]}), "sampling.bad_words", "not supported"),
    (request(stop={"max_tokens": 0}), "stop.max_tokens", "at least 1"),
    (request(stop={"max_tokens": 2, "min_tokens": 3}), "stop.min_tokens", "more than max_tokens (2)"),
    (request(stop={"stop": ["x"] * 17}), "stop.stop", "at most 16"),
    (request(stop={"stop": [""]}), "stop.stop", "empty string"),
    (request(stop={"stop": ["x" * 257]}), "stop.stop", "at most 256"),
    (request(stop={"stop_token_ids": [100]}), "stop.stop_token_ids", "from 0 to 99"),
    (request(stop={"stop_token_ids": [1] * 65}), "stop.stop_token_ids", "at most 64"),
    (request(output={"n": 0}), "output.n", "ask for 1"),
    (request(output={"n": 2}), "output.n", "not supported"),
    (request(output={"logprobs": True}), "output.logprobs", "not supported"),
    (request(output={"top_logprobs": 2}), "output.top_logprobs", "not supported"),
    (request(output={"prompt_logprobs": True}), "output.prompt_logprobs", "not supported"),
    (request(output={"echo": True}), "output.echo", "not supported"),
    (request(constraint={"regex": "a+"}), "constraint.regex", "not supported"),
    (request(constraint={"json_object": True}), "constraint.json_object", "not supported"),
    (request(options={"priority": 10}), "options.priority", "9 the lowest"),
    (request(options={"priority": -1}), "options.priority", "0 is the highest"),
    (request(options={"cache_policy": 9}), "options.cache_policy", "not a policy"),
    (request(options={"request_id": "x" * 129}), "options.request_id", "at most 128"),
    (request(options={"request_id": "a\nb"}), "options.request_id", "printable"),
    (request(options={"request_id": "a\0b"}), "options.request_id", "printable"),
    (request(options={"model": "x" * 257}), "options.model", "at most 256"),
    (request(options={"labels": {str(n): "" for n in range(17)}}), "options.labels", "at most 16"),
    (request(options={"labels": {"k": "x" * 65}}), "options.labels", "at most 64"),
    (request(options={"labels": {"k\n": "x"}}), "options.labels", "printable"),
    (request(options={"labels": {"": "x"}}), "options.labels", "empty key"),
]


@pytest.mark.parametrize(("given", "field", "says"), REFUSED, ids=[f"{f}: {s}" for _, f, s in REFUSED])
def test_a_wrong_field_is_named_with_its_limit(given: pb.GenerateRequest, field: str, says: str) -> None:
    """VAL-1, VAL-2, VAL-6."""
    with pytest.raises(InvalidRequest) as refusal:
        check(given)
    assert refusal.value.violations[0].field == field
    assert says in refusal.value.message


ACCEPTED = [
    request(),
    request(prompt=pb.Prompt(text="")),
    request(prompt=pb.Prompt(text="a\0b")),
    request(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[0, 99]))),
    request(sampling={"temperature": 0, "top_p": 0, "top_k": 0, "seed": 0}),
    request(sampling={"temperature": 2, "top_p": 1, "top_k": -1, "seed": 2**64 - 1}),
    request(sampling={"min_p": 0, "typical_p": 1, "repetition_penalty": 1, "presence_penalty": 0}),
    request(stop={"max_tokens": 1, "min_tokens": 1, "stop": ["x" * 256] * 16, "stop_token_ids": [99]}),
    request(output={"n": 1, "return_token_ids": True, "skip_special_tokens": False}),
    request(options={"priority": 0, "request_id": "x" * 128, "labels": {"k" * 64: "v" * 64}}),
    chat(tools=[pb.Tool(name="f")], tool_choice=pb.ToolChoice(mode=pb.ToolChoice.MODE_NONE)),
    chat(messages=[message(""), message(role=pb.ROLE_TOOL)]),
]


@pytest.mark.parametrize("given", ACCEPTED)
def test_the_edges_of_every_range_are_accepted(given: pb.GenerateRequest) -> None:
    check(given)


def resolved(**sampling: Any) -> tuple[float, float, int, int]:
    values = resolve(generation_input(request(sampling=sampling)).sampling, ModelDefaults(0.7, 0.9, 40))
    return values.temperature, values.top_p, values.top_k, values.seed


def test_zero_is_never_taken_for_absent() -> None:
    """VAL-6: top_p 0 stays 0, seed 0 is a seed, top_k 0 and -1 switch the model's default off."""
    assert resolved(temperature=0, top_p=0, top_k=0, seed=0) == (0, 0, 0, 0)
    assert resolved(top_k=-1, seed=5)[2:] == (0, 5)


def test_an_absent_field_means_the_models_default_and_every_request_gets_a_seed_of_its_own() -> None:
    assert resolved()[:3] == (0.7, 0.9, 40)
    assert resolved()[3] != resolved()[3]
