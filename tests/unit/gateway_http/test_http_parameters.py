"""What the JSON bodies accept and refuse: always 400 in OpenAI's shape, naming the parameter."""

from typing import Any

import httpx
import pytest
from fake_generation import FakeGeneration

MESSAGES = [{"role": "user", "content": "hi"}]


async def chat_error(api: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await api.post("/v1/chat/completions", json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("temperature", "hot", "invalid_type"),
        ("temperature", True, "invalid_type"),
        ("temperature", [1], "invalid_type"),
        ("top_p", "1", "invalid_type"),
        ("top_k", 1.5, "invalid_type"),
        ("top_k", 2**40, "invalid_value"),
        ("max_tokens", 0, "invalid_value"),
        ("max_tokens", -5, "invalid_value"),
        ("max_tokens", True, "invalid_type"),
        ("max_tokens", 1.0, "invalid_type"),
        ("max_tokens", 10**30, "invalid_value"),
        ("max_completion_tokens", 0, "invalid_value"),
        ("n", 0, "invalid_value"),
        ("seed", 2**64, "invalid_value"),
        ("seed", 1.5, "invalid_type"),
        ("stream", "yes", "invalid_type"),
        ("stream", 1, "invalid_type"),
        ("stop", 5, "invalid_type"),
        ("stop", ["a", 5], "invalid_type"),
        ("logit_bias", {"x": 1}, "invalid_value"),
        ("logit_bias", {"9" * 5000: 1}, "invalid_value"),
        ("logit_bias", {"-1": 1}, "invalid_value"),
        ("timeout", 0, "invalid_value"),
        ("cache_policy", "never", "invalid_value"),
        ("request_id", "a b", "invalid_value"),
        ("request_id", "a\n", "invalid_value"),
        ("request_id", "x" * 129, "invalid_value"),
        ("model", 5, "invalid_type"),
        ("messages", {}, "invalid_type"),
        ("messages", None, "invalid_type"),
        ("messages", "hi", "invalid_type"),
    ],
)
async def test_wrong_value_is_refused_by_name(api: httpx.AsyncClient, name: str, value: object, code: str) -> None:
    """API-5, VAL-6."""
    error = await chat_error(api, {"messages": MESSAGES, name: value})
    assert (error["param"], error["code"]) == (name, code)
    assert error["message"].startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("logprobs", True),
        ("top_logprobs", 2),
        ("response_format", {"type": "json_object"}),
        ("store", True),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("reasoning_effort", "high"),
        ("service_tier", "flex"),
        ("metadata", {"a": 1}),
        ("user", 5),
        ("guided_json", {}),
        ("chat_template", "x"),
        ("echo", True),
        ("best_of", 2),
    ],
)
async def test_what_this_version_lacks_is_refused_by_name(api: httpx.AsyncClient, name: str, value: object) -> None:
    error = await chat_error(api, {"messages": MESSAGES, name: value})
    assert error["param"] == name
    assert error["code"] in ("unsupported_value", "unknown_parameter")


@pytest.mark.parametrize(("name", "value"), [("echo", True), ("suffix", "x"), ("best_of", 2), ("logprobs", 0)])
async def test_completion_refuses_what_it_lacks(api: httpx.AsyncClient, name: str, value: object) -> None:
    response = await api.post("/v1/completions", json={"prompt": "a", name: value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", "me"),
        ("metadata", {"a": "b"}),
        ("store", False),
        ("service_tier", "auto"),
        ("n", 1),
        ("logprobs", False),
        ("top_logprobs", None),
        ("response_format", {"type": "text"}),
        ("tool_choice", "none"),
        ("tools", []),
        ("modalities", ["text"]),
        ("stream_options", None),
        ("prompt_cache_key", "k"),
        ("logit_bias", {}),
        ("parallel_tool_calls", True),
    ],
)
async def test_neutral_values_change_nothing(api: httpx.AsyncClient, name: str, value: object) -> None:
    response = await api.post("/v1/chat/completions", json={"messages": MESSAGES, name: value})
    assert response.status_code == 200, response.text


async def test_zero_does_not_pass_for_false(api: httpx.AsyncClient) -> None:
    error = await chat_error(api, {"messages": MESSAGES, "logprobs": 0})
    assert error["param"] == "logprobs"


async def test_unknown_parameter_is_refused_with_a_suggestion(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    error = await chat_error(api, {"messages": MESSAGES, "temprature": 1})
    assert (error["param"], error["code"]) == ("temprature", "unknown_parameter")
    assert "temperature" in error["message"]
    assert not generation.requests


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {"type": "text", "text": "x"}}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content"),
        ([{"role": "user", "content": "x", "mood": "good"}], "messages[0].mood"),
        (["x"], "messages[0]"),
    ],
)
async def test_wrong_message_is_located(api: httpx.AsyncClient, messages: object, param: str) -> None:
    assert (await chat_error(api, {"messages": messages}))["param"] == param


async def test_missing_messages_are_named(api: httpx.AsyncClient) -> None:
    error = await chat_error(api, {})
    assert (error["param"], error["code"]) == ("messages", "missing_parameter")


async def test_two_different_token_limits_are_refused(api: httpx.AsyncClient) -> None:
    error = await chat_error(api, {"messages": MESSAGES, "max_tokens": 4, "max_completion_tokens": 5})
    assert error["param"] == "max_tokens"


@pytest.mark.parametrize(
    "prompt", [5, None, True, {}, [True], [1.5], [1, "a"], ["a", 1], [[1], [True]], [-1], [2**32], [["a"]], [[[1]]]]
)
async def test_wrong_prompt_is_refused(api: httpx.AsyncClient, prompt: object) -> None:
    response = await api.post("/v1/completions", json={"prompt": prompt})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith("prompt")


@pytest.mark.parametrize("prompt", [[], [[]], ["a", []]])
async def test_empty_prompt_list_is_refused_in_the_words_of_json(api: httpx.AsyncClient, prompt: object) -> None:
    response = await api.post("/v1/completions", json={"prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "prompt: is empty; give a string, or at least 1 token id"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [5]}, "messages[0]: expected an object, got a number"),
        ({"messages": {}}, "messages: expected a list, got an object"),
        ({"messages": MESSAGES, "stream": 1}, "stream: expected a boolean, got a number"),
        ({"messages": MESSAGES, "top_k": 1.5}, "top_k: expected a whole number, got a number"),
        ({"messages": MESSAGES, "stream_options": {"x": 1}}, "stream_options.x: unknown parameter"),
        ({"messages": [{"role": "user", "content": "", "audio": 1}]}, "messages[0].audio: should be null"),
        ({"messages": MESSAGES, "logit_bias": {"5": True}}, "logit_bias: the bias of 5 is not a number"),
    ],
)
async def test_refusal_speaks_of_json(api: httpx.AsyncClient, body: dict[str, Any], message: str) -> None:
    assert (await chat_error(api, body))["message"] == message


async def test_type_of_an_unsupported_part_is_repeated_in_short(api: httpx.AsyncClient) -> None:
    for kind in ("x" * 100_000, {"x" * 100_000: 1}):
        error = await chat_error(api, {"messages": [{"role": "user", "content": [{"type": kind}]}]})
        assert "are not supported" in error["message"]
        assert len(error["message"]) < 200
