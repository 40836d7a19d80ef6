"""POST /v1/completions and GET /v1/models."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest
from fake_generation import MODEL, FakeGeneration, Script, ready
from opentelemetry.context import Context
from sse import events_of

from headrace.v1.inference_pb2 import Chunk, GenerateRequest
from services.common.errors import InvalidRequest
from services.gateway.authentication import Authentication
from services.gateway.caller import Caller
from services.gateway.http.app import create_app


class CountingGeneration(FakeGeneration):
    """Lets the others run between its chunks, and remembers how many did."""

    most_running = 0

    async def stream(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> AsyncGenerator[Chunk, None]:
        async for chunk in super().stream(request, caller, timeout_seconds=timeout_seconds, parent=parent):
            self.most_running = max(self.most_running, self.running)
            await asyncio.sleep(0)
            yield chunk


async def post(api: httpx.AsyncClient, **body: object) -> httpx.Response:
    return await api.post("/v1/completions", json={"model": MODEL} | body)


async def test_text_prompt_is_completed(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    body = (await post(api, prompt="Once")).json()
    assert generation.requests[0].prompt.text == "Once"
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}]


async def test_token_ids_are_one_prompt(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    for prompt in ([1, 2, 3], [[1, 2, 3]]):
        assert (await post(api, prompt=prompt)).status_code == 200
    assert [list(request.prompt.token_ids.ids) for request in generation.requests] == [[1, 2, 3]] * 2


async def test_stream_is_text_then_reason_then_done(api: httpx.AsyncClient) -> None:
    *events, done = events_of((await post(api, prompt="Once", stream=True)).text)
    assert done == "[DONE]"
    assert [(event["choices"][0]["text"], event["choices"][0]["finish_reason"]) for event in events] == [
        ("Hel", None),
        ("lo", None),
        ("", "stop"),
    ]


async def test_several_prompts_give_a_choice_each(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    response = await post(api, prompt=["a", "b", "c"], request_id="r")
    body = response.json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == 3 * 7
    assert body["id"] == "cmpl-r"
    assert [request.options.request_id for request in generation.requests] == ["r-0", "r-1", "r-2"]


async def test_several_prompts_stream_together(api: httpx.AsyncClient) -> None:
    options = {"include_usage": True}
    response = await post(api, prompt=["a", [5]], stream=True, stream_options=options)
    *events, usage, done = events_of(response.text)
    assert done == "[DONE]"
    for index in (0, 1):
        own = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == "Hello"
        assert [choice["finish_reason"] for choice in own][-1] == "stop"
    assert usage["usage"]["completion_tokens"] == 8


async def test_one_bad_prompt_of_several_is_refused_before_any_text(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    generation.script = Script(error=InvalidRequest("prompt", "too long"))
    response = await post(api, prompt=["a", "b"], stream=True)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert generation.running == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_at_most_eight_prompts_of_one_call_run_at_a_time(stream: bool) -> None:
    generation = CountingGeneration()
    transport = httpx.ASGITransport(create_app(generation, Authentication(None), ready()))
    async with httpx.AsyncClient(transport=transport, base_url="http://headrace") as api:
        response = await post(api, prompt=["a"] * 20, stream=stream)
    assert response.status_code == 200
    assert len(generation.requests) == 20
    assert generation.most_running == 8
    assert response.text.count('"stop"') == 20


async def test_long_request_id_gives_way_to_the_number_of_the_prompt(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    """Every prompt's id stays within what a request's id may be."""
    request_id = "x" * 128
    response = await api.post("/v1/completions", json={"prompt": ["a", "b"]}, headers={"x-request-id": request_id})
    assert response.status_code == 200
    assert response.headers["x-request-id"] == request_id
    assert [request.options.request_id for request in generation.requests] == ["x" * 126 + "-0", "x" * 126 + "-1"]


async def test_too_many_prompts_are_refused_with_the_limit(api: httpx.AsyncClient) -> None:
    error = (await post(api, prompt=["a"] * 65)).json()["error"]
    assert error["param"] == "prompt"
    assert "64" in error["message"]


async def test_models_are_listed_and_found_by_name(api: httpx.AsyncClient) -> None:
    listed = (await api.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == [MODEL, "org/other"]
    assert listed["object"] == "list"
    assert (await api.get("/v1/models/org/other")).json()["object"] == "model"


async def test_unknown_model_is_named(api: httpx.AsyncClient) -> None:
    response = await api.get("/v1/models/nope")
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "model_not_found"
    assert MODEL in error["message"]
