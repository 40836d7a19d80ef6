"""One SERVER span per request, ended with what really happened."""

from collections.abc import Iterator

import httpx
import pytest
from fake_generation import FakeGeneration, Script
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from services.common.errors import InvalidRequest, Unavailable

CHAT = {"messages": [{"role": "user", "content": "hi"}], "request_id": "r1"}
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Collects the spans of this process."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    yield exporter
    exporter.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


@pytest.mark.parametrize("stream", [False, True])
async def test_span_continues_the_callers_trace(
    api: httpx.AsyncClient, generation: FakeGeneration, spans: InMemorySpanExporter, stream: bool
) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
    await api.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers=headers)
    span = only(spans)
    assert span.name == "POST /v1/chat/completions"
    assert span.kind is SpanKind.SERVER
    assert trace.format_trace_id(span.context.trace_id) == TRACE_ID
    assert trace.format_span_id(span.parent.span_id) == SPAN_ID
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["http.route"] == "/v1/chat/completions"
    assert span.attributes["headrace.request_id"] == "r1"
    assert span.status.status_code is StatusCode.UNSET
    passed_on = trace.get_current_span(generation.parents[0]).get_span_context()
    assert passed_on.span_id == span.context.span_id


@pytest.mark.parametrize("traceparent", ["", "junk", "00-0-0-00", "ff-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_malformed_traceparent_starts_a_trace(
    api: httpx.AsyncClient, spans: InMemorySpanExporter, traceparent: str
) -> None:
    await api.post("/v1/chat/completions", json=CHAT, headers={"traceparent": traceparent})
    assert only(spans).parent is None


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (Script(error=InvalidRequest("sampling.top_p", "no")), 400, "invalid_value"),
        (Script(error=Unavailable("gone"), error_after=1), 200, "unavailable"),
    ],
)
async def test_failure_is_on_the_span_also_after_the_status(
    api: httpx.AsyncClient,
    generation: FakeGeneration,
    spans: InMemorySpanExporter,
    script: Script,
    status: int,
    code: str,
) -> None:
    generation.script = script
    await api.post("/v1/chat/completions", json=CHAT | {"stream": True})
    span = only(spans)
    assert span.attributes["http.response.status_code"] == status
    assert span.attributes["error.type"] == code
    assert span.status.status_code is StatusCode.ERROR


async def test_unknown_paths_do_not_name_spans(api: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    await api.get("/v1/scan/../me")
    assert only(spans).name == "GET"


async def test_probes_leave_no_span(api: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    await api.get("/health")
    await api.get("/ready")
    assert not spans.get_finished_spans()
