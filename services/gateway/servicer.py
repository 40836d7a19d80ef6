"""Serves the public gRPC API: reads messages, asks Generation, writes messages."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from opentelemetry import context as otel_context

from headrace.v1 import inference_pb2 as pb
from headrace.v1 import inference_pb2_grpc
from services.common.errors import NotBuiltYet, errors_as_status
from services.gateway.authentication import Authentication
from services.gateway.caller import Caller
from services.gateway.from_proto import generate_request
from services.gateway.generation import Generation

Context = grpc.aio.ServicerContext[Any, Any]

# Our answer, which says why, must reach the client before its own clock ends the call.
_MARGIN_SECONDS = 0.1
_MARGIN_SHARE = 0.1


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Implements InferenceService. Generators close what they iterate, so that an ended call ends its work."""

    def __init__(self, generation: Generation, authentication: Authentication) -> None:
        self._generation = generation
        self._authentication = authentication

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """Answers once."""
        async with errors_as_status(context):
            return await self._generate(request, context)

    async def StreamGenerate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.Chunk]:
        """Answers chunk by chunk."""
        async with errors_as_status(context), aclosing(self._stream(request, context)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def Chat(self, request: pb.ChatRequest, context: Context) -> pb.GenerateResponse:
        """Answers a conversation once."""
        async with errors_as_status(context):
            return await self._generate(generate_request(request), context)

    async def StreamChat(self, request: pb.ChatRequest, context: Context) -> AsyncIterator[pb.Chunk]:
        """Answers a conversation chunk by chunk."""
        async with errors_as_status(context), aclosing(self._stream(generate_request(request), context)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def ResumeStream(self, request: pb.ResumeStreamRequest, context: Context) -> AsyncIterator[pb.Chunk]:
        """Is not there yet."""
        async with errors_as_status(context):
            self._caller(context)
            raise NotBuiltYet("ResumeStream is not built yet; send the request again")
            yield

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Ends a running request of the same tenant."""
        async with errors_as_status(context):
            caller = self._caller(context)
            return pb.CancelResponse(was_running=await self._generation.cancel(request.request_id, caller))

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Turns a prompt into ids."""
        async with errors_as_status(context):
            self._caller(context)
            return await self._generation.tokenize(request)

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        """Turns ids into text."""
        async with errors_as_status(context):
            self._caller(context)
            return await self._generation.detokenize(request)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """Lists what can answer."""
        async with errors_as_status(context):
            self._caller(context)
            return pb.ListModelsResponse(models=await self._generation.list_models())

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Is not there yet."""
        async with errors_as_status(context):
            self._caller(context)
            raise NotBuiltYet("Explain is not built yet; the DONE line of the gateway's log has a request's times")

    async def _generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        return await self._generation.generate(
            request,
            self._caller(context),
            timeout_seconds=_timeout_seconds(context),
            parent=otel_context.get_current(),
        )

    def _stream(self, request: pb.GenerateRequest, context: Context) -> AsyncGenerator[pb.Chunk, None]:
        return self._generation.stream(
            request,
            self._caller(context),
            timeout_seconds=_timeout_seconds(context),
            parent=otel_context.get_current(),
        )

    def _caller(self, context: Context) -> Caller:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        return self._authentication.authenticate(metadata.get("authorization"))


def _timeout_seconds(context: Context) -> float | None:
    remaining = context.time_remaining()
    return None if remaining is None else remaining - min(_MARGIN_SECONDS, remaining * _MARGIN_SHARE)
