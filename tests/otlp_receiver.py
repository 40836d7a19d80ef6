"""A trace receiver that speaks OTLP over gRPC, as a collector does, and keeps what it gets."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it came over the wire."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    status: str
    attributes: Mapping[str, Any]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    schema_url: str


@dataclass(slots=True)
class Trace:
    """All spans of one trace id."""

    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str) -> ReceivedSpan:
        """Returns the one span of this name; its service may stand before it: "scheduler:queue"."""
        found = self.all_named(name)
        assert len(found) == 1, f"{len(found)} spans {name} in\n{self}"
        return found[0]

    def all_named(self, name: str) -> list[ReceivedSpan]:
        """Returns every span of this name."""
        service, _, short = name.rpartition(":")
        return [span for span in self.spans if span.name == short and service in span.service]

    def parent(self, span: ReceivedSpan) -> ReceivedSpan | None:
        """Returns a span's parent, if it came."""
        return next((other for other in self.spans if other.span_id == span.parent_id), None)

    def ancestors(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        """Returns the way from a span's parent to the root."""
        way = []
        above = self.parent(span)
        while above is not None:
            way.append(above)
            above = self.parent(above)
        return way

    def __str__(self) -> str:
        """Draws the tree."""
        known = {span.span_id for span in self.spans}
        lines: list[str] = []

        def draw(span: ReceivedSpan, depth: int) -> None:
            took = (span.end - span.start) / 1e6
            lines.append(f"{'  ' * depth}{span.service}: {span.name} [{span.kind} {span.status} {took:.1f} ms]")
            for below in sorted(self.spans, key=lambda other: other.start):
                if below.parent_id == span.span_id:
                    draw(below, depth + 1)

        for root in (span for span in self.spans if span.parent_id not in known):
            draw(root, 0)
        return "\n".join(lines)


class OtlpReceiver(TraceServiceServicer):
    """Keeps the spans of every export."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._spans: list[ReceivedSpan] = []
        self.endpoint = ""

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        """Takes an export."""
        found = [_received(part, scope, span) for part, scope, span in _each(request)]
        with self._arrived:
            self._spans += found
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    def spans(self) -> list[ReceivedSpan]:
        """Returns all spans so far."""
        with self._arrived:
            return list(self._spans)

    def trace(self, trace_id: str) -> Trace:
        """Returns what has come of a trace."""
        return Trace([span for span in self.spans() if span.trace_id == trace_id])

    def wait_for(self, trace_id: str, is_complete: Callable[[Trace], bool], seconds: float = 15) -> Trace:
        """Waits until a trace is complete; what has come by the end of the time is returned as it is."""
        ends_at = time.monotonic() + seconds
        with self._arrived:
            while True:
                trace = Trace([span for span in self._spans if span.trace_id == trace_id])
                remaining = ends_at - time.monotonic()
                if remaining <= 0 or is_complete(trace):
                    return trace
                self._arrived.wait(remaining)


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Serves a receiver on a free port of this machine."""
    receiver = OtlpReceiver()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_TraceServiceServicer_to_server(receiver, server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


def _each(request: ExportTraceServiceRequest) -> Iterator[tuple[trace_pb2.ResourceSpans, str, trace_pb2.Span]]:
    for part in request.resource_spans:
        for scoped in part.scope_spans:
            for span in scoped.spans:
                yield part, scoped.schema_url, span


def _received(part: trace_pb2.ResourceSpans, schema_url: str, span: trace_pb2.Span) -> ReceivedSpan:
    resource = {item.key: _value(item.value) for item in part.resource.attributes}
    return ReceivedSpan(
        service=str(resource["service.name"]),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        attributes={item.key: _value(item.value) for item in span.attributes},
        events=tuple(event.name for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        schema_url=schema_url,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
