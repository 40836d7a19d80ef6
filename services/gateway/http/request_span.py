"""Wraps every HTTP request: its id, its SERVER span, its headers, and an answer even to a bug of ours."""

import time

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.common.tracing import context_from_metadata, mark_failed, tracer
from services.gateway.http.api_error import ApiError
from services.gateway.http.brief import brief
from services.gateway.http.exchange import Exchange, put_exchange, request_id_of

log = structlog.get_logger()

# Known paths name their spans; anything else is one name, however many paths a scanner tries.
_ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/models")
_MODEL_ROUTE = "/v1/models/"
# Probes, without interest for a request's story.
_UNTRACED = ("/health", "/ready")
_PATH_CHARACTERS = 200
# Statuses from here on are the server's failures.
_FIRST_OF_OURS = 500


class RequestSpan:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        span = _start_span(scope, headers)
        parent = trace.set_span_in_context(span, otel_context.Context())
        # The request has a task of its own, so there is nobody to give the context back to.
        otel_context.attach(parent)
        exchange = Exchange(request_id_of(headers.get("x-request-id")), parent)
        put_exchange(scope, exchange)
        try:
            await self._serve(scope, receive, send, exchange)
        except BaseException as error:
            exchange.error = exchange.error or ApiError(499, "cancelled", code=type(error).__name__.lower())
            raise
        finally:
            _end_span(span, exchange, scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                headers["x-request-id"] = exchange.request_id
                if not headers.get("content-type", "").startswith("text/event-stream"):
                    headers["openai-processing-ms"] = str(exchange.elapsed_milliseconds())
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except Exception as error:
            log.exception("unexpected error in an HTTP request", request_id=exchange.request_id)
            if exchange.status is not None:
                raise
            message = f"unexpected {type(error).__name__}; the server's log has the trace of this bug"
            exchange.error = ApiError(500, message, "server_error", code="internal")
            await JSONResponse(exchange.error.body(), 500)(scope, receive, send_noting)


def _start_span(scope: Scope, headers: Headers) -> Span:
    path, method = scope["path"], scope["method"]
    if path in _UNTRACED:
        return trace.INVALID_SPAN
    route = _route(path)
    shown_path = brief(path, _PATH_CHARACTERS)
    attributes = {"http.request.method": method, "url.path": shown_path, "url.scheme": scope.get("scheme", "http")}
    if route is not None:
        attributes["http.route"] = route
    parent = context_from_metadata(list(headers.items()))
    name = f"{method} {route}" if route is not None else method
    return tracer().start_span(name, parent, kind=SpanKind.SERVER, attributes=attributes)


def _route(path: str) -> str | None:
    if path.startswith(_MODEL_ROUTE):
        return _MODEL_ROUTE + "{model}"
    return path if path in _ROUTES else None


def _end_span(span: Span, exchange: Exchange, scope: Scope) -> None:
    error = exchange.error
    span.set_attribute("headrace.request_id", exchange.request_id)
    if exchange.status is not None:
        span.set_attribute("http.response.status_code", exchange.status)
    if error is not None:
        mark_failed(span, error.code or str(error.status), error.message)
        log.info(
            "HTTP request failed",
            request_id=exchange.request_id,
            route=_route(scope["path"]) or "unknown",
            status=error.status,
            code=error.code,
            # The message of a client's error repeats words of the client's.
            error=error.message if error.status >= _FIRST_OF_OURS else "",
            duration_ms=round((time.monotonic() - exchange.started) * 1000, 1),
        )
    span.end()
