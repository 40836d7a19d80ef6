"""A server interceptor that gives every call one span, ended with the call's real outcome.

The stock instrumentation records cancelled and expired streams as OK, so this one is our own. Each call has a task of
its own, therefore the context is attached once and never detached across a yield.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from services.common.drain import ENDLESS
from services.common.stream_writing import WritingContext, write_stream
from services.common.tracing import REQUEST_ID_KEY, context_from_metadata, mark_failed, tracer

# Endless, or a poll: no request's story.
_UNTRACED = (*ENDLESS, "/headrace.v1.SchedulerService/GetLoads")


@dataclass(frozen=True, slots=True)
class _Incoming:
    """What a call says about itself before it is served."""

    method: str
    parent: otel_context.Context
    request_id: str | None


class TraceInterceptor(grpc.aio.ServerInterceptor):
    """Wraps handlers of all four kinds in a SERVER span whose parent is the caller's."""

    def __init__(self, *, is_internal: bool) -> None:
        self._is_internal = is_internal

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Returns the handler, traced unless its method is of no interest."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return handler
        if method.startswith(_UNTRACED):
            return _wrapped(handler, lambda behaviour: behaviour, _writing)
        metadata = handler_call_details.invocation_metadata
        # Only our own processes are believed; a client names its request in the request.
        request_id = dict(metadata or ()).get(REQUEST_ID_KEY) if self._is_internal else None
        if isinstance(request_id, str):
            # The call has a task of its own; every log line from it now names the request.
            structlog.contextvars.bind_contextvars(request_id=request_id)
        else:
            request_id = None
        incoming = _Incoming(method.removeprefix("/"), context_from_metadata(metadata), request_id)
        return _wrapped(
            handler,
            lambda behaviour: _answering(behaviour, incoming),
            lambda behaviour: _streaming(behaviour, incoming),
        )


def _wrapped(handler: Any, unary: Callable[[Any], Any], stream: Callable[[Any], Any]) -> Any:
    serializers = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(unary(handler.unary_unary), **serializers)
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(unary(handler.stream_unary), **serializers)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(stream(handler.unary_stream), **serializers)
    return grpc.stream_stream_rpc_method_handler(stream(handler.stream_stream), **serializers)


def _answering(behaviour: Any, incoming: _Incoming) -> Any:
    async def answer(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        with CallSpan(incoming, context):
            return await behaviour(request, context)

    return answer


def _streaming(behaviour: Any, incoming: _Incoming) -> Any:
    async def stream(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        with CallSpan(incoming, context) as call:
            await write_stream(behaviour, request, WritingContext(context, call.note_first_message))

    return stream


def _writing(behaviour: Any) -> Any:
    async def stream(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await write_stream(behaviour, request, WritingContext(context, None))

    return stream


class CallSpan:
    """The span of one served call."""

    def __init__(self, incoming: _Incoming, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        self._context = context
        self._deadline_slack = _deadline_slack(context.time_remaining())
        attributes = {"rpc.system.name": "grpc", "rpc.method": incoming.method}
        if incoming.request_id is not None:
            attributes["headrace.request_id"] = incoming.request_id
        self._span: Span = tracer().start_span(
            incoming.method, incoming.parent, kind=SpanKind.SERVER, attributes=attributes
        )

    def __enter__(self) -> "CallSpan":
        otel_context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        code = self._outcome(error)
        self._span.set_attribute("rpc.response.status_code", code)
        if code != "OK":
            mark_failed(self._span, code, self._context.details() or "")
        self._span.end()

    def note_first_message(self) -> None:
        """Marks the first message of a stream."""
        self._span.add_event("first message")

    def _outcome(self, error: BaseException | None) -> str:
        if error is None:
            return _code_name(self._context.code(), "OK")
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            remaining = self._context.time_remaining()
            is_late = remaining is not None and remaining <= self._deadline_slack
            return "DEADLINE_EXCEEDED" if is_late else "CANCELLED"
        return _code_name(self._context.code(), "UNKNOWN")


def _deadline_slack(time_limit: float | None) -> float:
    """Returns how early the client's own timer may end a call: timeouts are rounded up on the wire, by up to 1 %."""
    return 0.02 + 0.02 * (time_limit or 0.0)


def _code_name(code: Any, absent: str) -> str:
    """Names a status code; grpc.aio hands it over as an enum, a number, or nothing."""
    if isinstance(code, grpc.StatusCode):
        return code.name
    for known in grpc.StatusCode:
        if code and known.value[0] == code:
            return known.name
    return absent
