"""A small typed client of the public gRPC API."""

import dataclasses
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Unpack

import grpc

from headrace.errors import invalid_request, raising_headrace_errors
from headrace.request_messages import (
    GenerationOptions,
    Turn,
    call_metadata,
    call_timeout,
    cancel_message,
    common_fields,
    conversation_message,
    prompt_message,
)
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_pb2 as inf
from headrace.v1.inference_pb2_grpc import InferenceServiceStub

DEFAULT_ADDRESS = "127.0.0.1:50051"

_CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # A long prefill sends nothing for a while: pings tell a slow server from a dead one.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Prompt tokens that were not computed again, from either cache."""
    recomputed_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    finish_reason: str
    """stop, length, cancelled, deadline or error."""
    usage: Usage
    request_id: str
    model: str


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A part of a streamed answer; the last one has finish_reason and usage."""

    text: str
    sequence: int
    request_id: str
    finish_reason: str | None = None
    usage: Usage | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that can answer now."""

    name: str
    version: str
    architecture: str
    context_length: int
    runners: int
    is_default: bool


class AnswerStream(Iterator[Piece]):
    """The pieces of an answer as they are made; closing it ends the work on the server."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __next__(self) -> Piece:
        with raising_headrace_errors():
            return _to_piece(next(self._call))

    def __enter__(self) -> "AnswerStream":
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what has not been generated yet; harmless after the end."""
        self._call.cancel()


class Client:
    """A connection to a gateway; safe to share between threads, and a context manager."""

    def __init__(self, address: str = DEFAULT_ADDRESS, api_key: str | None = None) -> None:
        local = address.startswith(("unix:", "127.", "localhost", "[::1]"))
        # A proxy of the environment is never meant for this machine itself.
        proxy = [("grpc.enable_http_proxy", 0)] if local else []
        self._metadata = call_metadata(api_key)
        try:
            self._channel = grpc.insecure_channel(address, options=[*_CHANNEL_OPTIONS, *proxy])
        except UnicodeError as error:
            raise invalid_request("address", f"{address!a} is not text that UTF-8 can carry") from error
        self._stub = InferenceServiceStub(self._channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; open streams end."""
        self._channel.close()

    def chat(self, conversation: str | Sequence[Turn], **options: Unpack[GenerationOptions]) -> Answer:
        """Answers a question or a conversation."""
        request = inf.ChatRequest(conversation=conversation_message(conversation), **common_fields(options))
        with raising_headrace_errors():
            return _to_answer(self._stub.Chat(request, **self._call_options(options)))

    def stream_chat(self, conversation: str | Sequence[Turn], **options: Unpack[GenerationOptions]) -> AnswerStream:
        """Answers a question or a conversation piece by piece."""
        request = inf.ChatRequest(conversation=conversation_message(conversation), **common_fields(options))
        return AnswerStream(self._stub.StreamChat(request, **self._call_options(options)))

    def generate(self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]) -> Answer:
        """Continues a text, or token ids as they are."""
        request = inf.GenerateRequest(prompt=prompt_message(prompt), **common_fields(options))
        with raising_headrace_errors():
            return _to_answer(self._stub.Generate(request, **self._call_options(options)))

    def stream_generate(self, prompt: str | Sequence[int], **options: Unpack[GenerationOptions]) -> AnswerStream:
        """Continues a text, or token ids as they are, piece by piece."""
        request = inf.GenerateRequest(prompt=prompt_message(prompt), **common_fields(options))
        return AnswerStream(self._stub.StreamGenerate(request, **self._call_options(options)))

    def models(self, timeout_seconds: float | None = 10.0) -> list[ModelInfo]:
        """Lists the models that can answer now."""
        with raising_headrace_errors():
            timeout = call_timeout(timeout_seconds)
            reply = self._stub.ListModels(inf.ListModelsRequest(), timeout=timeout, metadata=self._metadata)
        return [
            ModelInfo(
                name=model.name,
                version=model.version,
                architecture=model.architecture,
                context_length=model.context_length,
                runners=model.runners,
                is_default=model.is_default,
            )
            for model in reply.models
        ]

    def cancel(self, request_id: str, timeout_seconds: float | None = 10.0) -> bool:
        """Ends a request of this caller; tells whether it was still running."""
        with raising_headrace_errors():
            timeout = call_timeout(timeout_seconds)
            reply = self._stub.Cancel(cancel_message(request_id), timeout=timeout, metadata=self._metadata)
        return reply.was_running

    def _call_options(self, options: GenerationOptions) -> dict[str, Any]:
        return {"timeout": call_timeout(options.get("timeout_seconds")), "metadata": self._metadata}


def _to_answer(reply: inf.GenerateResponse) -> Answer:
    choice = reply.choices[0]
    return Answer(
        text=choice.text,
        finish_reason=_finish_name(choice.finish_reason),
        usage=_to_usage(reply.usage),
        request_id=reply.request_id,
        model=reply.model,
    )


def _to_piece(chunk: inf.Chunk) -> Piece:
    return Piece(
        text=chunk.text,
        sequence=chunk.sequence,
        request_id=chunk.request_id,
        finish_reason=_finish_name(chunk.finish_reason) if chunk.HasField("finish_reason") else None,
        usage=_to_usage(chunk.usage) if chunk.HasField("usage") else None,
    )


def _to_usage(usage: gen.Usage) -> Usage:
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens_l1 + usage.cached_tokens_l2,
        recomputed_tokens=usage.recomputed_tokens,
    )


def _finish_name(reason: gen.FinishReason) -> str:
    return gen.FinishReason.Name(reason).removeprefix("FINISH_REASON_").lower()
