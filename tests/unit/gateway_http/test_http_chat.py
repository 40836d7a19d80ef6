"""POST /v1/chat/completions: whole and streamed answers."""

import httpx
import pytest
from fake_generation import MODEL, VERSION, FakeGeneration, Script
from sse import events_of

from headrace.v1.generation_pb2 import FINISH_REASON_LENGTH
from headrace.v1.inference_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 4,
    "total_tokens": 11,
    "prompt_tokens_details": {"cached_tokens": 5},
}


async def post(api: httpx.AsyncClient, **more: object) -> httpx.Response:
    return await api.post("/v1/chat/completions", json=CHAT | more)


async def test_whole_answer_has_openais_shape(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "abc"})
    body = response.json()
    assert response.status_code == 200
    assert body.pop("created") > 1_700_000_000
    message = {"role": "assistant", "content": "Hello", "refusal": None}
    assert body == {
        "id": "chatcmpl-abc",
        "object": "chat.completion",
        "model": MODEL,
        "system_fingerprint": VERSION,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    assert response.headers["x-request-id"] == "abc"
    assert response.headers["openai-processing-ms"].isdigit()


async def test_stream_gives_role_then_text_then_reason_then_done(api: httpx.AsyncClient) -> None:
    """API-2."""
    response = await post(api, stream=True)
    *events, done = events_of(response.text)
    assert done == "[DONE]"
    assert [event["choices"][0]["delta"] for event in events] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, None, "stop"]
    assert len({(event["id"], event["created"]) for event in events}) == 1
    assert all("usage" not in event for event in events)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


async def test_stream_headers_keep_proxies_from_collecting_it(api: httpx.AsyncClient) -> None:
    response = await post(api, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"]


async def test_usage_chunk_comes_last_if_asked_for(api: httpx.AsyncClient) -> None:
    """API-1."""
    response = await post(api, stream=True, stream_options={"include_usage": True})
    *events, last, _done = events_of(response.text)
    assert last["choices"] == []
    assert last["usage"] == USAGE
    assert all(event["usage"] is None for event in events)


async def test_stream_options_need_a_stream(api: httpx.AsyncClient) -> None:
    """API-1."""
    response = await post(api, stream_options={"include_usage": True})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stream_options"


async def test_answer_without_text_still_opens_and_closes(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    """API-2: the model ends at once."""
    generation.script = Script(texts=(), finish=FINISH_REASON_LENGTH)
    *events, _done = events_of((await post(api, stream=True)).text)
    choices = [event["choices"][0] for event in events]
    assert [choice["delta"] for choice in choices] == [{"role": "assistant", "content": ""}, {}]
    assert choices[-1]["finish_reason"] == "length"


async def test_token_ids_come_back_if_asked_for(api: httpx.AsyncClient) -> None:
    whole = (await post(api, return_token_ids=True)).json()
    *events, _done = events_of((await post(api, return_token_ids=True, stream=True)).text)
    streamed = [token_id for event in events for token_id in event["choices"][0].get("token_ids", [])]
    assert whole["choices"][0]["token_ids"] == streamed == [10, 11, 12]


async def test_messages_reach_the_model_with_role_and_text(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "水"}, {"type": "text", "text": "?"}], "name": "ann"},
        {"role": "assistant", "content": "water", "refusal": None, "annotations": [], "tool_calls": None},
    ]
    assert (await post(api, messages=messages)).status_code == 200
    sent = generation.requests[0].prompt.messages.messages
    assert [message.role for message in sent] == [ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT]
    assert [[part.text for part in message.parts] for message in sent] == [["be brief"], ["水", "?"], ["water"]]
    assert sent[1].name == "ann"


async def test_tool_calls_of_earlier_turns_are_kept(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
    ]
    assert (await post(api, messages=messages)).status_code == 200
    _, assistant, tool = generation.requests[0].prompt.messages.messages
    assert (assistant.tool_calls[0].name, tool.tool_call_id) == ("f", "c1")


async def test_parameters_reach_generation(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    asked = {
        "temperature": 0,
        "top_p": 0,
        "top_k": -1,
        "seed": 0,
        "max_completion_tokens": 5,
        "min_tokens": 2,
        "stop": "END",
        "stop_token_ids": [3],
        "ignore_eos": True,
        "priority": 0,
        "cache_policy": "read_only",
        "request_id": "mine",
        "timeout": 2.5,
        "frequency_penalty": 0,
    }
    response = await post(api, **asked)
    request = generation.requests[0]
    assert response.headers["x-request-id"] == "mine"
    assert response.json()["id"] == "chatcmpl-mine"
    assert request.options.request_id == "mine"
    assert generation.timeouts == [2.5]
    # 0 is a value, not an absence (VAL-6).
    for name in ("temperature", "top_p", "seed", "frequency_penalty"):
        assert request.sampling.HasField(name)
        assert getattr(request.sampling, name) == 0
    assert request.sampling.top_k == -1
    assert (request.stop.max_tokens, request.stop.min_tokens) == (5, 2)
    assert list(request.stop.stop) == ["END"]
    assert request.options.HasField("priority")


async def test_absent_and_null_parameters_stay_absent(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    assert (await post(api, temperature=None, seed=None, stop=None, tools=None)).status_code == 200
    request = generation.requests[0]
    assert not request.sampling.ListFields()
    assert not request.stop.ListFields()
    assert not request.output.ListFields()


@pytest.mark.parametrize(("seed", "expected"), [(-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63)])
async def test_signed_seeds_are_seeds(
    api: httpx.AsyncClient, generation: FakeGeneration, seed: int, expected: int
) -> None:
    assert (await post(api, seed=seed)).status_code == 200
    assert generation.requests[0].sampling.seed == expected


async def test_unusable_request_id_header_is_replaced(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "a b\tc"})
    assert response.status_code == 200
    assert response.headers["x-request-id"] not in ("", "a b\tc")
