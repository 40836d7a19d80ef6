"""A request's way through the gateway: one path for every call and protocol."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from opentelemetry.context import Context

from headrace.v1 import generation_pb2
from headrace.v1.inference_pb2 import (
    Choice,
    Chunk,
    DetokenizeRequest,
    DetokenizeResponse,
    GenerateRequest,
    GenerateResponse,
    Model,
    TokenizeRequest,
    TokenizeResponse,
)
from services.common.errors import DeadlineExceeded, InvalidRequest
from services.gateway.admission import Admission, Admitted, new_request_id
from services.gateway.answer import Finish, Piece
from services.gateway.caller import Caller
from services.gateway.from_proto import generation_input, prompt_input
from services.gateway.metrics import GatewayMetrics
from services.gateway.open_requests import OpenRequest, OpenRequests
from services.gateway.request import GenerationInput, TokenPrompt
from services.gateway.request_record import RequestRecord
from services.gateway.scheduler_client import SchedulerClient
from services.gateway.submission import Submission
from services.gateway.validation import require_in_vocabulary, validate_prompt, validate_request_id

_FINISH_REASONS = {
    Finish.STOP: generation_pb2.FINISH_REASON_STOP,
    Finish.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
}


@dataclass(frozen=True, slots=True)
class GenerationParts:
    """What Generation works with."""

    admission: Admission
    scheduler: SchedulerClient
    open_requests: OpenRequests
    metrics: GatewayMetrics
    request_seconds: float
    """Longest time that a request may take, also when its caller sets no limit."""


class Generation:
    """Validates, tokenizes, submits, and streams the answer's text."""

    def __init__(self, parts: GenerationParts) -> None:
        self._parts = parts

    async def stream(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> AsyncGenerator[Chunk, None]:
        """Yields the answer's chunks; closing the iterator cancels the work. Raises ServiceError, also midway."""
        record = self._record(request, caller, parent)
        longest = self._parts.request_seconds
        limit = longest if timeout_seconds is None else min(timeout_seconds, longest)
        deadline = asyncio.get_running_loop().time() + limit
        with record.written():
            validate_request_id(request.options.request_id)
            record.request_id = request.options.request_id or new_request_id()
            given = generation_input(request)
            with self._parts.open_requests.opened(caller, record.request_id) as open_request:
                admitted = await self._admit(given, record, open_request, deadline)
                chunks = self._submit(given, admitted, record, open_request, deadline)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        yield chunk

    async def generate(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> GenerateResponse:
        """Collects the same stream into one answer."""
        response = GenerateResponse()
        choice = Choice()
        texts: list[str] = []
        async with aclosing(self.stream(request, caller, timeout_seconds=timeout_seconds, parent=parent)) as chunks:
            async for chunk in chunks:
                texts.append(chunk.text)
                choice.token_ids.extend(chunk.token_ids)
                if chunk.HasField("finish_reason"):
                    choice.finish_reason, choice.stop_matched = chunk.finish_reason, chunk.stop_matched
                    response.usage.CopyFrom(chunk.usage)
                    response.timing.CopyFrom(chunk.timing)
                    response.request_id = chunk.request_id
                    response.model, response.model_version = chunk.model, chunk.model_version
        choice.text = "".join(texts)
        response.choices.append(choice)
        return response

    async def cancel(self, request_id: str, caller: Caller) -> bool:
        """Ends a request of this caller; tells whether it was running."""
        if not request_id:
            raise InvalidRequest("request_id", "is missing; name the request to cancel")
        return self._parts.open_requests.cancel(caller, request_id)

    async def tokenize(self, request: TokenizeRequest) -> TokenizeResponse:
        """Turns a prompt into the ids that generation would use."""
        model = await self._parts.admission.find_model(request.model, None)
        prompt = prompt_input(request.prompt)
        validate_prompt(prompt)
        assert prompt is not None  # validate_prompt() has seen to it
        if isinstance(prompt, TokenPrompt):
            require_in_vocabulary("prompt.token_ids", prompt.token_ids, model.vocabulary_size)
        token_ids, tokens = await self._parts.admission.tokenizing.look_up(prompt)
        return TokenizeResponse(token_ids=token_ids, tokens=tokens, context_length=model.context_tokens)

    async def detokenize(self, request: DetokenizeRequest) -> DetokenizeResponse:
        """Turns ids into text."""
        model = await self._parts.admission.find_model(request.model, None)
        require_in_vocabulary("token_ids", request.token_ids, model.vocabulary_size)
        skips_special = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
        text = await self._parts.admission.tokenizing.decode(list(request.token_ids), skips_special=skips_special)
        return DetokenizeResponse(text=text)

    async def list_models(self) -> list[Model]:
        """Lists the models that can answer now, the default first."""
        return [
            Model(
                name=model.name,
                version=model.version,
                architecture=model.architecture,
                context_length=model.context_tokens,
                vocabulary_size=model.vocabulary_size,
                runners=model.runners,
                is_default=index == 0,
            )
            for index, model in enumerate(await self._parts.admission.models())
        ]

    def _record(self, request: GenerateRequest, caller: Caller, parent: Context) -> RequestRecord:
        operation = "chat" if request.prompt.HasField("messages") else "text_completion"
        return RequestRecord(caller, parent, self._parts.metrics, operation)

    async def _admit(
        self, given: GenerationInput, record: RequestRecord, open_request: OpenRequest, deadline: float
    ) -> Admitted:
        try:
            async with asyncio.timeout_at(deadline):
                admitted = await self._parts.admission.admit(given, record)
        except TimeoutError:
            raise DeadlineExceeded(
                "the call's time limit passed before the request could be submitted; allow more time"
            ) from None
        open_request.raise_if_cancelled()
        return admitted

    async def _submit(
        self,
        given: GenerationInput,
        admitted: Admitted,
        record: RequestRecord,
        open_request: OpenRequest,
        deadline: float,
    ) -> AsyncGenerator[Chunk, None]:
        remaining = deadline - asyncio.get_running_loop().time()
        submit = self._parts.scheduler.submit(admitted.start, timeout_seconds=remaining, parent=record.parent)
        async with submit as call:
            submission = Submission(call, admitted.answer, record)
            pieces = submission.pieces(open_request)
            async with aclosing(pieces):
                async for piece in pieces:
                    if piece.finish is not None:
                        record.finish_reason = piece.finish.value
                    yield _chunk(piece, given, record, submission)


def _chunk(piece: Piece, given: GenerationInput, record: RequestRecord, submission: Submission) -> Chunk:
    chunk = Chunk(
        request_id=record.request_id,
        sequence=piece.sequence,
        text=piece.text,
        token_ids=piece.token_ids if given.output.returns_token_ids else (),
        model=submission.model or record.model,
        model_version=submission.model_version,
    )
    if piece.finish is not None:
        chunk.finish_reason = _FINISH_REASONS[piece.finish]
        chunk.stop_matched = piece.stop_matched
        chunk.usage.CopyFrom(record.usage)
        chunk.timing.CopyFrom(record.complete(submission.timing))
    return chunk
