"""Streams that are left, and bad input beside a stream that goes on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from stack import Stack, until

import headrace
from headrace.errors import HeadraceError
from headrace.v1 import generation_pb2, inference_pb2

LONG = {"max_tokens": 1500, "temperature": 1.0, "seed": 7}


def endless(**options: object) -> inference_pb2.ChatRequest:
    """A request that generates for long: the end-of-sequence token does not end it."""
    message = inference_pb2.Message(role=inference_pb2.ROLE_USER, parts=[inference_pb2.Part(text="Hello")])
    return inference_pb2.ChatRequest(
        conversation=inference_pb2.Conversation(messages=[message]),
        sampling=generation_pb2.SamplingParams(temperature=0),
        stop=generation_pb2.StopCondition(max_tokens=1500, ignore_eos=True),
    )


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
        next(reply.iter_lines())
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


class Neighbour:
    """A stream that runs beside the bad requests, in a thread of its own."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.text = ""
        self.failure: HeadraceError | None = None
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with self._stack.client() as client:
                for piece in client.stream_chat("Hello", temperature=0, min_tokens=300, max_tokens=300):
                    self.text += piece.text
                    self.started.set()
        except HeadraceError as error:
            self.failure = error
            self.started.set()


@contextmanager
def undisturbed(stack: Stack) -> Iterator[None]:
    """Runs the block beside a neighbour, whose text has to be what it is without the block."""
    with stack.client() as client:
        expected = client.chat("Hello", temperature=0, min_tokens=300, max_tokens=300).text
    neighbour = Neighbour(stack)
    neighbour.thread.start()
    assert neighbour.started.wait(30)
    yield
    neighbour.thread.join(60)
    assert neighbour.failure is None
    assert neighbour.text == expected


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


def test_bad_http_input_names_the_field_and_disturbs_nobody(stack: Stack) -> None:
    url = f"{stack.http_url}/v1/chat/completions"
    with undisturbed(stack):
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


def test_a_prompt_of_five_megabytes_is_refused_quickly_and_holds_nobody_up(stack: Stack) -> None:
    huge = "water " * (5 * 1024 * 1024 // 6)
    with undisturbed(stack):
        reply = stack.complete(huge)
        assert reply.status_code in (400, 413)
        assert reply.json()["error"]["message"]
        with stack.client() as client, pytest.raises(HeadraceError) as failure:
            client.chat(huge, timeout_seconds=30)
        assert failure.value.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


BAD_OPTIONS: dict[str, tuple[object, headrace.GenerationOptions, str]] = {
    "empty prompt": ("", {}, "prompt"),
    "prompt longer than the context": ("water " * 3000, {}, "prompt"),
    "max_tokens 0": ("Hello", {"max_tokens": 0}, "max_tokens"),
    "temperature too high": ("Hello", {"temperature": 2.5}, "temperature"),
    "temperature negative": ("Hello", {"temperature": -1.0}, "temperature"),
    "token id outside the vocabulary": ([1, 2_000_000], {}, "token_ids"),
    "priority": ("Hello", {"priority": 10}, "priority"),
}


def test_bad_grpc_input_names_the_field_and_disturbs_nobody(stack: Stack) -> None:
    with undisturbed(stack), stack.client() as client:
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
