"""A request's way through the gateway: one path for every call and protocol."""

from collections.abc import AsyncIterator

from opentelemetry.context import Context

from headrace.v1.inference_pb2 import (
    Chunk,
    DetokenizeRequest,
    DetokenizeResponse,
    GenerateRequest,
    GenerateResponse,
    Model,
    TokenizeRequest,
    TokenizeResponse,
)
from services.gateway.caller import Caller


class Generation:
    """Validates, tokenizes, submits, and streams the answer's text."""

    async def stream(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> AsyncIterator[Chunk]:
        """Yields the answer's chunks; closing the iterator cancels the work. Raises ServiceError, also midway."""
        raise NotImplementedError
        yield

    async def generate(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> GenerateResponse:
        """Collects the same stream into one answer."""
        raise NotImplementedError

    async def cancel(self, request_id: str, caller: Caller) -> bool:
        """Ends a request of this caller; tells whether it was running."""
        raise NotImplementedError

    async def tokenize(self, request: TokenizeRequest) -> TokenizeResponse:
        """Turns a prompt into the ids that generation would use."""
        raise NotImplementedError

    async def detokenize(self, request: DetokenizeRequest) -> DetokenizeResponse:
        """Turns ids into text."""
        raise NotImplementedError

    async def list_models(self) -> list[Model]:
        """Lists the models that can answer now, the default first."""
        raise NotImplementedError
