"""Bodies with far too much in them: refused by a count, before anything is done with every item."""

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
from fake_generation import FakeGeneration
from pydantic import ValidationError

from services.gateway.http import app
from services.gateway.http.body import parse_object
from services.gateway.http.schema import ChatBody, CompletionBody

JSON = {"content-type": "application/json"}
MESSAGE = {"role": "user", "content": "hi"}
PART = {"type": "text", "text": ""}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}


def chat(**more: object) -> dict[str, Any]:
    return {"messages": [MESSAGE]} | more


@pytest.fixture
def unreached_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_values: object) -> None:
        raise AssertionError("the body reached validation")

    for kind in (ChatBody, CompletionBody):
        monkeypatch.setattr(kind, "model_validate", fail)


@pytest.mark.usefixtures("unreached_validation")
@pytest.mark.parametrize(
    ("body", "param", "limit"),
    [
        ({"messages": [1] * 4097}, "messages", "4096"),
        ({"messages": [MESSAGE] * 4097}, "messages", "4096"),
        (chat(stop_token_ids=["a"] * 65), "stop_token_ids", "64"),
        (chat(stop=["a"] * 17), "stop", "16"),
        ({"messages": [MESSAGE | {"content": [PART] * 8193}]}, "messages", "8192"),
        ({"messages": [MESSAGE | {"content": [PART] * 4097}] * 2}, "messages", "8192"),
        ({"messages": [MESSAGE | {"tool_calls": [1] * 8193}]}, "messages", "8192"),
        (chat(**{f"k{index}": 1 for index in range(512)}), None, "512"),
        (chat(**{"k" * 3_900_000: 1}), None, "256"),
        (chat(logit_bias={str(index): 1 for index in range(513)}), "logit_bias", "512"),
        (chat(metadata={"k" * 257: "x"}), "metadata", "256"),
        ({"messages": [MESSAGE | {"k" * 257: 1}]}, "messages[0]", "256"),
        ({"messages": [MESSAGE | {"tool_calls": [CALL | {"k" * 257: 1}]}]}, "messages[0].tool_calls[0]", "256"),
    ],
)
async def test_too_much_is_refused_with_the_limit_before_validation(
    api: httpx.AsyncClient, body: dict[str, Any], param: str | None, limit: str
) -> None:
    response = await api.post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert limit in error["message"]
    assert len(error["message"]) < 200


@pytest.mark.usefixtures("unreached_validation")
@pytest.mark.parametrize("prompt", [[7] * 262_145, [[7] * 262_145], [[7] * 131_073, [7] * 131_072]])
async def test_more_token_ids_than_any_context_holds_are_refused_before_validation(
    api: httpx.AsyncClient, prompt: object
) -> None:
    response = await api.post("/v1/completions", json={"prompt": prompt})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    assert "262145 token ids" in error["message"]
    assert "262144" in error["message"]


async def test_what_is_just_within_the_limits_is_taken(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    messages = [{"role": "user", "content": [PART, PART]}] * 4096
    body = {"messages": messages, "stop": ["a"] * 16, "stop_token_ids": [1] * 64}
    assert (await api.post("/v1/chat/completions", json=body)).status_code == 200
    assert len(generation.requests[0].prompt.messages.messages) == 4096


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [1] * 4096},
        {"messages": [{"role": "x"}] * 4096},
        chat(stop_token_ids=["a"] * 64),
        {"messages": [{"role": "user", "tool_calls": [1] * 8192}]},
        chat(logit_bias=dict.fromkeys(map(str, range(512)), "x")),
    ],
)
def test_validation_stops_at_the_first_wrong_item(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        ChatBody.model_validate(body)
    assert raised.value.error_count() == 1


async def test_body_of_very_many_lists_is_refused_unparsed(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building a million lists takes half a second, whatever they are for."""
    monkeypatch.setattr("services.gateway.http.body.from_json", None)
    for opening in (b"[],", b"{},", b'":": 1,'):
        body = b'{"messages": [' + opening * 131_072 + b"1]}"
        response = await api.post("/v1/chat/completions", content=body, headers=JSON)
        assert response.status_code == 400
        assert "131072 lists and objects" in response.json()["error"]["message"]


@pytest.mark.parametrize(("characters", "is_in_loop"), [(1000, True), (100_000, False)])
async def test_large_body_is_parsed_off_the_event_loop(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, characters: int, is_in_loop: bool
) -> None:
    threads = []

    def parse(raw: bytes) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return parse_object(raw)

    monkeypatch.setattr(app, "parse_object", parse)
    text = "x" * characters
    for path, body in (("completions", {"prompt": text}), ("chat/completions", chat(user=text))):
        assert (await api.post(f"/v1/{path}", json=body)).status_code == 200
    assert [thread is threading.main_thread() for thread in threads] == [is_in_loop] * 2


async def test_large_bodies_are_parsed_one_at_a_time(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    parsing = 0
    most = 0

    async def counted(work: Any, *given: Any) -> Any:
        nonlocal parsing, most
        parsing += 1
        most = max(most, parsing)
        await asyncio.sleep(0)
        parsing -= 1
        return work(*given)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    content = json.dumps({"prompt": "x" * 100_000})
    calls = [api.post("/v1/completions", content=content, headers=JSON) for _ in range(4)]
    assert [response.status_code for response in await asyncio.gather(*calls)] == [200] * 4
    assert most == 1
