"""The routes of the OpenAI-compatible API and what each of them does."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.v1.inference_pb2 import Chunk, GenerateRequest, GenerateResponse
from services.common.errors import ModelNotFound, ServiceError
from services.gateway.authentication import Authentication
from services.gateway.caller import Caller
from services.gateway.generation import Generation
from services.gateway.http.answers import AnswerStyle, streamed_answer, whole_answer
from services.gateway.http.api_error import ApiError, HttpFault, api_error
from services.gateway.http.body import parse_object, read_body
from services.gateway.http.connection import run_while_connected
from services.gateway.http.event_stream import EventStream
from services.gateway.http.exchange import Exchange, exchange_of
from services.gateway.http.forms import ChatForm, Form, Json, TextForm
from services.gateway.http.param_names import ParamNames
from services.gateway.http.prompts import all_chunks, all_responses
from services.gateway.http.request_span import RequestSpan
from services.gateway.http.schema import ChatBody, CommonBody, CompletionBody, chat_body, completion_body
from services.gateway.http.settings import HttpSettings
from services.gateway.http.translate import chat_request, completion_requests
from services.gateway.readiness import Readiness

Endpoint = Callable[[Request], Awaitable[Response]]
Parsed = TypeVar("Parsed")


class OpenAiApi:
    """The endpoints, over one Generation."""

    def __init__(
        self, generation: Generation, authentication: Authentication, readiness: Readiness, settings: HttpSettings
    ) -> None:
        self._generation = generation
        self._authentication = authentication
        self._readiness = readiness
        self._settings = settings
        self._started_unix_seconds = int(time.time())
        # One at a time: threads that compute take turns with the event loop, and several would leave it few.
        self._large_bodies = asyncio.Semaphore(1)
        self.closing = asyncio.Event()
        """Once set, running requests end with UNAVAILABLE."""

    async def chat_completions(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        caller = self._caller(request)
        exchange = exchange_of(request)
        body, asked = await self._parsed(request, lambda raw: _chat(raw, exchange.request_id))
        alias = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        exchange.names = ParamNames(prompt="messages", max_tokens=alias)
        exchange.request_id = body.request_id or exchange.request_id
        return await self._answer(request, caller, body, asked, ChatForm())

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        caller = self._caller(request)
        exchange = exchange_of(request)
        body, asked = await self._parsed(request, lambda raw: _completion(raw, exchange.request_id, self._settings))
        exchange.request_id = body.request_id or exchange.request_id
        return await self._answer(request, caller, body, asked, TextForm())

    async def list_models(self, request: Request) -> Response:
        """GET /v1/models."""
        self._caller(request)
        return JSONResponse({"object": "list", "data": await self._models()})

    async def get_model(self, request: Request) -> Response:
        """GET /v1/models/{model}; a name may hold slashes."""
        self._caller(request)
        name = request.path_params["model"]
        models = await self._models()
        for model in models:
            if model["id"] == name:
                return JSONResponse(model)
        served = ", ".join(model["id"] for model in models) or "none"
        raise ModelNotFound(f"model {name!r} is not served here; served: {served}", resource=("model", name))

    async def health(self, request: Request) -> Response:
        """GET /health: the process lives."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """GET /ready: a request could be answered now."""
        del request
        reason = self._readiness.reason
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, 503, headers={"retry-after": "1"})

    def _caller(self, request: Request) -> Caller:
        return self._authentication.authenticate(request.headers.get("authorization"))

    async def _parsed(self, request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
        raw = await read_body(request, self._settings)
        if len(raw) <= self._settings.loop_bytes:
            return parse(raw)
        async with self._large_bodies:
            return await asyncio.to_thread(parse, raw)

    async def _models(self) -> list[Json]:
        return [
            {
                "id": model.name,
                "object": "model",
                "created": self._started_unix_seconds,
                "owned_by": "headrace",
                "version": model.version,
                "context_length": model.context_length,
            }
            for model in await self._generation.list_models()
        ]

    async def _answer(
        self, request: Request, caller: Caller, body: CommonBody, asked: list[GenerateRequest], form: Form
    ) -> Response:
        exchange = exchange_of(request)
        style = _style(exchange, body, form)

        def start(one: GenerateRequest) -> AsyncGenerator[Chunk, None]:
            return self._generation.stream(one, caller, timeout_seconds=body.timeout, parent=exchange.parent)

        async def ask(one: GenerateRequest) -> GenerateResponse:
            return await self._generation.generate(one, caller, timeout_seconds=body.timeout, parent=exchange.parent)

        if body.stream:
            events = streamed_answer(style, all_chunks(asked, start, self._settings.prompts_at_once))
            return EventStream(
                events,
                closing=self.closing,
                ping_seconds=self._settings.ping_seconds,
                to_api_error=lambda error: _failed(exchange, api_error(error, exchange.names)),
            )
        work = all_responses(asked, ask, self._settings.prompts_at_once)
        responses = await run_while_connected(request.receive, self.closing, work)
        return JSONResponse(whole_answer(style, responses))


def create_app(
    generation: Generation,
    authentication: Authentication,
    readiness: Readiness,
    settings: HttpSettings | None = None,
) -> Starlette:
    """Builds the HTTP API; `app.state.closing` is the event that ends running requests."""
    api = OpenAiApi(generation, authentication, readiness, settings or HttpSettings())
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", api.chat_completions, methods=["POST"]),
            Route("/v1/completions", api.completions, methods=["POST"]),
            Route("/v1/models", api.list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", api.get_model, methods=["GET"]),
            Route("/health", api.health, methods=["GET"]),
            Route("/ready", api.ready, methods=["GET"]),
        ],
        middleware=[Middleware(RequestSpan)],
        exception_handlers={ServiceError: _on_service_error, HttpFault: _on_fault, HTTPException: _on_http_exception},
    )
    # A path with a slash too many is not found; a redirect would turn a POST into a GET.
    app.router.redirect_slashes = False
    app.state.closing = api.closing
    return app


def _chat(raw: bytes, request_id: str) -> tuple[ChatBody, list[GenerateRequest]]:
    body = chat_body(parse_object(raw))
    return body, [chat_request(body, body.request_id or request_id)]


def _completion(raw: bytes, request_id: str, settings: HttpSettings) -> tuple[CompletionBody, list[GenerateRequest]]:
    body = completion_body(parse_object(raw), settings)
    return body, completion_requests(body, body.request_id or request_id)


def _style(exchange: Exchange, body: CommonBody, form: Form) -> AnswerStyle:
    return AnswerStyle(
        form=form,
        request_id=exchange.request_id,
        created=exchange.created_unix_seconds,
        choices_per_prompt=body.n or 1,
        has_token_ids=bool(body.return_token_ids),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _failed(exchange: Exchange, error: ApiError) -> ApiError:
    exchange.error = error
    return error


def _error_response(request: Request, error: ApiError) -> Response:
    _failed(exchange_of(request), error)
    return JSONResponse(error.body(), error.status, headers=dict(error.headers))


async def _on_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return _error_response(request, api_error(error, exchange_of(request).names))


async def _on_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpFault)
    return _error_response(request, error.error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.scope['path']}"
    allowed = (error.headers or {}).get("Allow")
    message = f"{where}: this path takes {allowed}" if allowed else f"{where}: there is no such route"
    code = "method_not_allowed" if allowed else "unknown_url"
    headers = tuple((error.headers or {}).items())
    return _error_response(request, ApiError(error.status_code, message, code=code, headers=headers))
