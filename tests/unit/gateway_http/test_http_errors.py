"""Errors in OpenAI's shape: statuses, codes, parameter names, and failures of a running stream."""

import httpx
import pytest
import structlog.testing
from fake_generation import FakeGeneration, Script, ready
from sse import events_of

from headrace.v1.generation_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_DEADLINE, FINISH_REASON_ERROR
from services.common.errors import (
    Cancelled,
    ContextLengthExceeded,
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    ModelNotFound,
    NotBuiltYet,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.gateway.authentication import ApiKey, Authentication
from services.gateway.http.app import create_app
from services.gateway.http.param_names import ParamNames
from services.gateway.readiness import Readiness

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


async def chat(api: httpx.AsyncClient, **more: object) -> httpx.Response:
    return await api.post("/v1/chat/completions", json=CHAT | more)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "param", "code"),
    [
        (InvalidRequest("sampling.temperature", "too hot"), 400, "temperature", "invalid_value"),
        (InvalidRequest("prompt.messages[2].parts", "empty"), 400, "messages[2]", "invalid_value"),
        (ContextLengthExceeded("prompt", "too long"), 400, "messages", "context_length_exceeded"),
        (ModelNotFound("no such model", resource=("model", "x")), 404, "model", "model_not_found"),
        (Overloaded("queue full"), 429, None, "overloaded"),
        (Cancelled("ended"), 499, None, "cancelled"),
        (Unavailable("no runner"), 503, None, "unavailable"),
        (DeadlineExceeded("late"), 504, None, "deadline_exceeded"),
        (NotBuiltYet("later"), 501, None, "not_implemented"),
        (GenerationFailed("broken"), 500, None, "generation_failed"),
    ],
)
async def test_error_before_the_answer_is_json(
    api: httpx.AsyncClient,
    generation: FakeGeneration,
    error: ServiceError,
    status: int,
    param: str | None,
    code: str,
    stream: bool,
) -> None:
    """API-4 (a) and API-5: also a stream answers with a status while nothing was sent."""
    generation.script = Script(error=error)
    response = await chat(api, stream=stream)
    body = response.json()["error"]
    assert response.status_code == status
    assert (body["param"], body["code"]) == (param, code)
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Unavailable("x"), "1"), (Unavailable("x", retry_after_seconds=2.4), "3"), (Overloaded("x"), "1")],
)
async def test_passing_trouble_says_when_to_retry(
    api: httpx.AsyncClient, generation: FakeGeneration, error: ServiceError, seconds: str
) -> None:
    generation.script = Script(error=error)
    assert (await chat(api)).headers["retry-after"] == seconds


async def test_token_limit_is_called_as_the_client_called_it(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    generation.script = Script(error=ContextLengthExceeded("stop.max_tokens", "at most 3"))
    for name in ("max_tokens", "max_completion_tokens"):
        error = (await chat(api, **{name: 9})).json()["error"]
        assert (error["param"], error["message"]) == (name, f"{name}: at most 3")


async def test_failure_of_a_running_stream_is_an_event_and_the_end(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    """API-4 (b)."""
    generation.script = Script(error=Unavailable("the runner is gone"), error_after=1)
    response = await chat(api, stream=True, stream_options={"include_usage": True})
    *events, last = events_of(response.text)
    assert response.status_code == 200
    assert last["error"]["code"] == "unavailable"
    assert last["error"]["message"] == "the runner is gone"
    assert all(event["choices"][0]["finish_reason"] is None for event in events)
    assert generation.running == 0


@pytest.mark.parametrize(
    ("finish", "status"), [(FINISH_REASON_CANCELLED, 499), (FINISH_REASON_DEADLINE, 504), (FINISH_REASON_ERROR, 500)]
)
async def test_bad_end_never_passes_for_an_answer(
    api: httpx.AsyncClient, generation: FakeGeneration, finish: int, status: int
) -> None:
    generation.script = Script(finish=finish)
    assert (await chat(api)).status_code == status
    *_, last = events_of((await chat(api, stream=True)).text)
    assert "error" in last


async def test_error_repeats_little_of_what_the_client_sent(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    generation.script = Script(error=InvalidRequest("x" * 10_000, "y" * 10_000))
    response = await chat(api)
    error = response.json()["error"]
    assert len(error["message"]) == 500
    assert len(error["param"]) == 200


async def test_log_of_a_client_error_holds_nothing_of_its_body_and_path(api: httpx.AsyncClient) -> None:
    with structlog.testing.capture_logs() as lines:
        await chat(api, private_parameter=1)
        await chat(api, logit_bias={"private": 1})
        await api.get("/v1/models/private")
        await api.get("/private")
    failures = [line for line in lines if line["event"] == "HTTP request failed"]
    assert [line["route"] for line in failures] == [
        "/v1/chat/completions",
        "/v1/chat/completions",
        "/v1/models/{model}",
        "unknown",
    ]
    assert "private" not in str(failures)


@pytest.mark.parametrize("error_after", [0, 1])
async def test_bug_of_ours_is_an_internal_error_without_details(
    api: httpx.AsyncClient, generation: FakeGeneration, error_after: int
) -> None:
    generation.script = Script(error=ZeroDivisionError("secret"), error_after=error_after)
    with structlog.testing.capture_logs() as lines:
        whole = await chat(api)
        streamed = await chat(api, stream=True)
    assert whole.status_code == 500
    assert whole.json()["error"]["type"] == "server_error"
    assert sum(line["log_level"] == "error" for line in lines) == 2
    assert "secret" not in whole.text + streamed.text
    assert '"server_error"' in streamed.text
    assert "[DONE]" not in streamed.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/", 404),
        ("POST", "/v1/completions/", 404),
    ],
)
async def test_unknown_route_and_wrong_method_have_the_same_shape(
    api: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await api.request(method, path)
    assert response.status_code == status
    assert response.json()["error"].keys() == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]


async def test_key_is_needed_where_keys_exist(generation: FakeGeneration) -> None:
    import hashlib

    keys = (ApiKey("acme", hashlib.sha256(b"k").digest()),)
    transport = httpx.ASGITransport(create_app(generation, Authentication(keys), ready()))
    async with httpx.AsyncClient(transport=transport, base_url="http://h") as api:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic k"}):
            for path in ("/v1/chat/completions", "/v1/completions"):
                response = await api.post(path, json=CHAT, headers=headers)
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "invalid_api_key"
            assert (await api.get("/v1/models", headers=headers)).status_code == 401
        assert (await api.get("/health")).status_code == 200
        assert (await api.get("/ready")).status_code == 200
        right = {"authorization": "Bearer k"}
        assert (await api.post("/v1/chat/completions", json=CHAT, headers=right)).status_code == 200
    assert generation.callers[0].tenant == "acme"


async def test_not_ready_says_why_and_lives(generation: FakeGeneration) -> None:
    """K8S-1."""
    readiness = Readiness(lambda: "no runner is attached")
    transport = httpx.ASGITransport(create_app(generation, Authentication(None), readiness))
    async with httpx.AsyncClient(transport=transport, base_url="http://h") as api:
        response = await api.get("/ready")
        assert response.status_code == 503
        assert response.json()["reason"] == "no runner is attached"
        assert (await api.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("sampling.top_p", "top_p"),
        ("stop.stop", "stop"),
        ("stop.stop_token_ids", "stop_token_ids"),
        ("output.n", "n"),
        ("options.model", "model"),
        ("prompt", "prompt"),
        ("prompt.token_ids[3]", "prompt[3]"),
        ("prompt.text", "prompt"),
        ("constraint.regex", "regex"),
        ("", ""),
    ],
)
def test_field_paths_become_parameter_names(field: str, name: str) -> None:
    assert ParamNames().of_field(field) == name
