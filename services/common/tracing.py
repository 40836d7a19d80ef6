"""OpenTelemetry set-up and the two helpers that carry a trace from process to process."""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.common.errors import ServiceError

Metadata = Sequence[tuple[str, str | bytes]]

# Pinned: the semantic conventions whose names we use.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

# Metadata of an internal call that belongs to one request.
REQUEST_ID_KEY = "headrace-request-id"

# The exporter alone would hold a process up for half a minute when its receiver is away.
_FLUSH_SECONDS = 3.0

_propagator = TraceContextTextMapPropagator()


def configure_tracing(service: str, instance: str) -> TracerProvider:
    """Installs a tracer provider; spans leave by OTLP where OTEL_EXPORTER_OTLP_ENDPOINT names a receiver."""
    resource = Resource.create(
        {"service.name": f"headrace-{service}", "service.namespace": "headrace", "service.instance.id": instance}
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if any(os.environ.get(name) for name in names):
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def shut_down_tracing(provider: TracerProvider) -> None:
    """Sends the last spans, for a few seconds at most."""
    flush = threading.Thread(target=provider.shutdown, name="last-spans", daemon=True)
    flush.start()
    flush.join(_FLUSH_SECONDS)


def tracer() -> trace.Tracer:
    """Returns this project's tracer."""
    return trace.get_tracer("headrace", schema_url=SCHEMA_URL)


def context_from_metadata(metadata: Metadata | None) -> otel_context.Context:
    """Reads the caller's trace context out of call metadata or HTTP headers."""
    carrier = {key: value for key, value in metadata or () if isinstance(value, str)}
    return _propagator.extract(carrier, otel_context.Context())


def context_from_traceparent(traceparent: str) -> otel_context.Context:
    """Reads a W3C traceparent; a malformed or empty one starts a new trace."""
    return _propagator.extract({"traceparent": traceparent}, otel_context.Context())


def traceparent_of(context: otel_context.Context) -> str:
    """Writes the context's span as a W3C traceparent; empty without a span."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context)
    return carrier.get("traceparent", "")


def with_trace(context: otel_context.Context, metadata: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Returns call metadata that carries the context."""
    carrier = dict(metadata or {})
    _propagator.inject(carrier, context)
    return list(carrier.items())


@contextmanager
def client_span(
    method: str, parent: otel_context.Context, *, request_id: str = ""
) -> Iterator[tuple[Span, list[tuple[str, str]]]]:
    """Opens a CLIENT span around one call ("headrace.v1.Service/Method"); yields it with the metadata to send."""
    attributes = {"rpc.system.name": "grpc", "rpc.method": method}
    own = {}
    if request_id:
        attributes["headrace.request_id"] = own[REQUEST_ID_KEY] = request_id
    span = tracer().start_span(method, parent, kind=SpanKind.CLIENT, attributes=attributes)
    code = "OK"
    try:
        yield span, with_trace(trace.set_span_in_context(span, parent), own)
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        mark_failed(span, code, error.details() or "")
        raise
    except ServiceError as error:
        code = error.code.name
        mark_failed(span, code, error.message)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        code = "CANCELLED"
        mark_failed(span, code)
        raise
    except BaseException as error:
        code = "UNKNOWN"
        mark_failed(span, type(error).__name__, str(error))
        raise
    finally:
        span.set_attribute("rpc.response.status_code", code)
        span.end()


def mark_failed(span: Span, code: str, description: str = "") -> None:
    """Records how a span failed."""
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, description or code))
