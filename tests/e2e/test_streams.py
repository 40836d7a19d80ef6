"""Streams that are left, and bad input beside a stream that goes on."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from stack import Stack, until

import headrace
from headrace.errors import HeadraceError

LONG = {"max_tokens": 1500, "temperature": 1.0, "seed": 7}


def test_closing_a_grpc_stream_frees_its_blocks_within_a_second(stack: Stack) -> None:
    until(lambda: stack.used_blocks() == 0, what="an idle instance")
    with stack.client() as client:
        stream = client.stream_chat("Hello", request_id="left-alone", min_tokens=1400, **LONG)
        next(stream)
        assert stack.used_blocks() > 0
        stream.close()
        until(lambda: stack.used_blocks() == 0, 1.0, "the freeing of all blocks")


def test_closing_an_http_stream_frees_its_blocks_within_a_second(stack: Stack) -> None:
    until(lambda: stack.used_blocks() == 0, what="an idle instance")
    body = {
        "model": "headrace-tiny",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "min_tokens": 1400,
        **LONG,
    }
    with httpx.stream("POST", f"{stack.http_url}/v1/chat/completions", json=body, timeout=60) as reply:
        assert reply.status_code == 200
        lines = reply.iter_lines()  # held, because httpx closes the connection with its iterator
        next(lines)
        until(lambda: stack.used_blocks() > 0, what="a running request")
    until(lambda: stack.used_blocks() == 0, 1.0, "the freeing of all blocks")


def test_a_request_can_be_cancelled_by_its_id(stack: Stack) -> None:
    with stack.client() as client:
        stream = client.stream_chat("Hello", request_id="to-cancel", min_tokens=1400, **LONG)
        next(stream)
        assert client.cancel("to-cancel")
        with pytest.raises(headrace.Cancelled):
            list(stream)
        assert not client.cancel("to-cancel")


NEIGHBOUR = headrace.GenerationOptions(temperature=0, min_tokens=200, max_tokens=200)


@pytest.fixture(scope="module")
def neighbours_text(stack: Stack) -> str:
    """What the neighbour's stream says when it is alone."""
    with stack.client() as client:
        return client.chat("Hello", **NEIGHBOUR).text


@contextmanager
def undisturbed(stack: Stack, expected: str) -> Iterator[None]:
    """Runs the block beside a stream, whose text has to be what it is without the block."""
    started = threading.Event()

    def stream() -> str:
        text = ""
        with stack.client() as client:
            for piece in client.stream_chat("Hello", **NEIGHBOUR):
                started.set()
                text += piece.text
        return text

    with ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(stream)
        assert started.wait(30)
        yield
        assert neighbour.result(60) == expected


HELLO = [{"role": "user", "content": "Hello"}]
BAD_BODIES = {
    "empty prompt": ({"messages": []}, "messages"),
    "prompt longer than the context": ({"messages": [{"role": "user", "content": "water " * 3000}]}, "messages"),
    "max_tokens 0": ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
    "max_tokens negative": ({"messages": HELLO, "max_tokens": -1}, "max_tokens"),
    "temperature hot": ({"messages": HELLO, "temperature": "hot"}, "temperature"),
    "temperature too high": ({"messages": HELLO, "temperature": 2.5}, "temperature"),
    "n": ({"messages": HELLO, "n": 2}, "n"),
    "logprobs": ({"messages": HELLO, "logprobs": True}, "logprobs"),
    "unknown parameter": ({"messages": HELLO, "temprature": 1}, "temprature"),
    "messages no list": ({"messages": {"role": "user"}}, "messages"),
}


def test_bad_http_input_names_the_field_and_disturbs_nobody(stack: Stack, neighbours_text: str) -> None:
    url = f"{stack.http_url}/v1/chat/completions"
    with undisturbed(stack, neighbours_text):
        for what, (fields, param) in BAD_BODIES.items():
            reply = httpx.post(url, json={"model": "headrace-tiny", **fields}, timeout=30)
            assert reply.status_code == 400, (what, reply.text)
            error = reply.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}, what
            assert error["type"] == "invalid_request_error", what
            assert (error["param"] or "").startswith(param), (what, error)
            assert error["message"], what
        unknown = httpx.post(url, json={"model": "nothing", "messages": HELLO}, timeout=30)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("malformed JSON", b'{"model": "headrace-tiny", '),
        ("invalid UTF-8", b'{"model": "headrace-tiny", "messages": [{"role": "user", "content": "\xff\xfe"}]}'),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(stack: Stack, what: str, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    reply = httpx.post(f"{stack.http_url}/v1/chat/completions", content=content, headers=headers, timeout=30)
    assert reply.status_code == 400, what
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_prompt_of_five_megabytes_is_refused_quickly_and_holds_nobody_up(stack: Stack, neighbours_text: str) -> None:
    huge = "water " * (5 * 1024 * 1024 // 6)
    with undisturbed(stack, neighbours_text):
        reply = stack.complete(huge)
        assert reply.status_code in (400, 413)
        assert reply.json()["error"]["message"]
        with stack.client() as client, pytest.raises(HeadraceError) as failure:
            client.chat(huge, timeout_seconds=30)
        assert failure.value.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


BAD_OPTIONS: dict[str, tuple[object, headrace.GenerationOptions, str]] = {
    "empty prompt": ([], {}, "token_ids"),
    "prompt longer than the context": ("water " * 3000, {}, "prompt"),
    "max_tokens 0": ("Hello", {"max_tokens": 0}, "max_tokens"),
    "temperature too high": ("Hello", {"temperature": 2.5}, "temperature"),
    "temperature negative": ("Hello", {"temperature": -1.0}, "temperature"),
    "token id outside the vocabulary": ([1, 2_000_000], {}, "token_ids"),
    "priority": ("Hello", {"priority": 10}, "priority"),
}


def test_bad_grpc_input_names_the_field_and_disturbs_nobody(stack: Stack, neighbours_text: str) -> None:
    with undisturbed(stack, neighbours_text), stack.client() as client:
        for what, (prompt, options, field) in BAD_OPTIONS.items():
            with pytest.raises(headrace.InvalidRequest) as failure:
                client.generate(prompt, **options)  # type: ignore[arg-type]
            assert any(field in violation.field for violation in failure.value.violations), (
                what,
                failure.value.violations,
            )
        with pytest.raises(headrace.NotFound) as unknown:
            client.chat("Hello", model="nothing")
        assert unknown.value.reason == "MODEL_NOT_FOUND"
