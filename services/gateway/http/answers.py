"""From chunks and responses of the gRPC API to OpenAI's JSON."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from headrace.v1.generation_pb2 import (
    FINISH_REASON_CANCELLED,
    FINISH_REASON_DEADLINE,
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    FinishReason,
    Usage,
)
from headrace.v1.inference_pb2 import Choice, Chunk, GenerateResponse
from services.common.errors import Cancelled, DeadlineExceeded, GenerationFailed
from services.gateway.http.forms import Form, Json

_FINISHED = {
    FINISH_REASON_STOP: "stop",
    FINISH_REASON_LENGTH: "length",
    FINISH_REASON_TOOL_CALLS: "tool_calls",
}


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How one request wants its answer."""

    form: Form
    request_id: str
    created: int
    choices_per_prompt: int = 1
    has_token_ids: bool = False
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """A chunk of the answer to one of a request's prompts."""

    prompt: int
    chunk: Chunk


def whole_answer(style: AnswerStyle, responses: Sequence[GenerateResponse]) -> Json:
    """Returns the answer to a request that does not stream; one response per prompt."""
    choices = [
        _whole_choice(style, prompt, choice) for prompt, response in enumerate(responses) for choice in response.choices
    ]
    first = responses[0]
    envelope = _envelope(style, style.form.whole_object, first.model, first.model_version, choices)
    return envelope | {"usage": usage_json([response.usage for response in responses])}


async def streamed_answer(style: AnswerStyle, chunks: AsyncGenerator[PromptChunk, None]) -> AsyncGenerator[Json, None]:
    """Yields the pieces of a streamed answer; raises ServiceError where the generation fails."""
    open_choices: set[int] = set()
    usages: list[Usage] = []
    model = version = ""
    async with aclosing(chunks) as source:
        async for item in source:
            chunk = item.chunk
            model, version = chunk.model or model, chunk.model_version or version
            for piece in _pieces(style, item, open_choices):
                yield _piece(style, model, version, [piece])
            if chunk.HasField("usage"):
                usages.append(chunk.usage)
    if open_choices or not usages:
        raise GenerationFailed("the answer ended without a finish reason; this is a bug of the server")
    if style.include_usage:
        yield _piece(style, model, version, []) | {"usage": usage_json(usages)}


def usage_json(usages: Sequence[Usage]) -> Json:
    """Sums the token counts of a request's prompts."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    cached = sum(usage.cached_tokens_l1 + usage.cached_tokens_l2 for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _pieces(style: AnswerStyle, item: PromptChunk, open_choices: set[int]) -> list[Json]:
    """Returns a chunk's pieces: the role before everything else, the finish reason after the text."""
    chunk = item.chunk
    index = item.prompt * style.choices_per_prompt + chunk.choice
    pieces = []
    if chunk.sequence == 0:
        open_choices.add(index)
        pieces.append(style.form.opening(index))
    token_ids = list(chunk.token_ids) if style.has_token_ids else None
    is_last = chunk.HasField("finish_reason")
    if chunk.text or (token_ids and not is_last):
        pieces.append(style.form.piece(index, chunk.text, token_ids))
        token_ids = [] if style.has_token_ids else None
    if is_last:
        open_choices.discard(index)
        pieces.append(style.form.closing(index, finish_reason(chunk.finish_reason), token_ids))
    return [piece for piece in pieces if piece is not None]


def finish_reason(reason: FinishReason) -> str:
    """Names why a choice ended; raises ServiceError for an end that is not an answer."""
    if reason in _FINISHED:
        return _FINISHED[reason]
    if reason == FINISH_REASON_CANCELLED:
        raise Cancelled("the request was cancelled")
    if reason == FINISH_REASON_DEADLINE:
        raise DeadlineExceeded("the request's time limit passed; allow more with the parameter timeout")
    raise GenerationFailed("the generation failed; the server's log has the cause")


def _whole_choice(style: AnswerStyle, prompt: int, choice: Choice) -> Json:
    index = prompt * style.choices_per_prompt + choice.index
    token_ids = list(choice.token_ids) if style.has_token_ids else None
    return style.form.whole(index, choice.text, finish_reason(choice.finish_reason), token_ids)


def _piece(style: AnswerStyle, model: str, version: str, choices: list[Json]) -> Json:
    envelope = _envelope(style, style.form.piece_object, model, version, choices)
    return envelope | {"usage": None} if style.include_usage else envelope


def _envelope(style: AnswerStyle, kind: str, model: str, version: str, choices: list[Json]) -> Json:
    return {
        "id": style.form.id_prefix + style.request_id,
        "object": kind,
        "created": style.created,
        "model": model,
        "choices": choices,
        "system_fingerprint": version,
    }
