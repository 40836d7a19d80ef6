import asyncio
import threading
import time

import grpc
import pytest
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from services.common.errors import Overloaded
from services.common.tracing import (
    client_span,
    configure_tracing,
    context_from_metadata,
    context_from_traceparent,
    mark_failed,
    shut_down_tracing,
    traceparent_of,
    tracer,
    with_trace,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_traceparent_survives_the_way_through_a_context():
    assert traceparent_of(context_from_traceparent(TRACEPARENT)) == TRACEPARENT
    assert traceparent_of(context_from_metadata([("traceparent", TRACEPARENT), ("bin-bin", b"\x00")])) == TRACEPARENT


@pytest.mark.parametrize("text", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-00"])
def test_a_malformed_traceparent_is_none(text):
    assert traceparent_of(context_from_traceparent(text)) == ""


def test_metadata_absent_is_no_parent():
    assert traceparent_of(context_from_metadata(None)) == ""


def test_the_callers_context_does_not_leak_into_one_that_was_read(spans):
    with tracer().start_as_current_span("current"):
        assert traceparent_of(context_from_traceparent("")) == ""


def test_call_metadata_carries_the_trace_beside_its_own():
    metadata = with_trace(context_from_traceparent(TRACEPARENT), {"authorization": "Bearer x"})

    assert dict(metadata) == {"authorization": "Bearer x", "traceparent": TRACEPARENT}


def test_tracestate_is_passed_on():
    context = context_from_metadata([("traceparent", TRACEPARENT), ("tracestate", "a=1")])

    assert dict(with_trace(context))["tracestate"] == "a=1"


class Refused(grpc.aio.AioRpcError):
    def __init__(self):
        super().__init__(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details="away")


@pytest.mark.parametrize(
    ("error", "error_type", "code"),
    [
        (Refused(), "UNAVAILABLE", "UNAVAILABLE"),
        (asyncio.CancelledError(), "CANCELLED", "CANCELLED"),
        (GeneratorExit(), "CANCELLED", "CANCELLED"),
        (Overloaded("full"), "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
        (KeyError("bug"), "KeyError", "UNKNOWN"),
    ],
    ids=["status", "cancelled", "closed", "ours", "bug"],
)
def test_a_client_span_tells_how_its_call_failed(spans, error, error_type, code):
    with pytest.raises(type(error)), client_span("a/B", otel_context.Context()):
        raise error

    span = spans.named("a/B")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == error_type
    assert span.attributes["rpc.response.status_code"] == code


def test_a_client_span_without_failure_is_ok(spans):
    with client_span("a/B", context_from_traceparent(TRACEPARENT)) as (span, metadata):
        pass

    assert spans.named("a/B").attributes["rpc.response.status_code"] == "OK"
    assert spans.named("a/B").status.status_code is StatusCode.UNSET
    assert int(dict(metadata)["traceparent"].split("-")[2], 16) == span.get_span_context().span_id


async def test_cancelling_a_traced_unary_call_reaches_the_server_and_the_caller(serve, spans):
    """OBS-7."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def run(_request, _context):
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    channel = await serve({"Run": ("unary_unary", run)})

    async def call():
        with client_span("test.v1.Echo/Run", otel_context.Context()) as (_, metadata):
            await channel.unary_unary("/test.v1.Echo/Run")(b"", metadata=metadata)

    task = asyncio.create_task(call())
    async with asyncio.timeout(2):
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
    assert spans.named("test.v1.Echo/Run").attributes["error.type"] == "CANCELLED"


async def test_a_stream_that_is_never_read_leaves_no_open_span(serve, spans):
    """OBS-7."""

    async def run(_request, _context):
        yield b"1"

    channel = await serve({"Run": ("unary_stream", run)})

    async def read():
        with client_span("test.v1.Echo/Run", otel_context.Context()) as (_, metadata):
            call = channel.unary_stream("/test.v1.Echo/Run")(b"", metadata=metadata)
            async for message in call:
                yield message

    stream = read()
    assert await anext(stream) == b"1"
    await stream.aclose()

    await spans.all_ended()
    assert spans.named("test.v1.Echo/Run").attributes["error.type"] == "CANCELLED"


def test_a_failed_span_says_how(spans):
    span = tracer().start_span("work")
    mark_failed(span, "TIMEOUT", "after 50 ms")
    span.end()

    assert spans.named("work").status.description == "after 50 ms"


def test_without_an_endpoint_nothing_is_exported(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    before = threading.active_count()

    provider = configure_tracing("mill", "i-1")

    assert threading.active_count() == before
    assert provider.resource.attributes["service.name"] == "headrace-mill"
    assert provider.resource.attributes["service.instance.id"] == "i-1"


def test_a_provider_that_does_not_end_delays_the_exit_by_seconds_only(monkeypatch):
    monkeypatch.setattr("services.common.tracing._FLUSH_SECONDS", 0.05)
    released = threading.Event()

    class Stuck(TracerProvider):
        def shutdown(self):
            released.wait(10)

    began = time.monotonic()
    shut_down_tracing(Stuck(shutdown_on_exit=False))

    assert time.monotonic() - began < 5
    released.set()
