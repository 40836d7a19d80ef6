"""A transfer's span joins the trace of the request that it was made for."""

import queue
from collections.abc import Iterator

import pytest
from byte_pool import IDENTITY, BytePool, load_order, publish_order
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from valkey_server import ValkeyServer

from services.runner.l2.orders import L2Config, TransferReport
from services.runner.l2.transfers import L2Transfers

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Collects spans beside whatever else this process does with them."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    yield exporter
    processor.shutdown()


def test_each_transfer_with_a_trace_is_one_span_of_it(valkey: ValkeyServer, spans: InMemorySpanExporter) -> None:
    reports: queue.Queue[TransferReport] = queue.Queue()
    transfers = L2Transfers(L2Config(valkey.url, threads=1), BytePool(), IDENTITY)
    transfers.submit_publish(publish_order(range(4), traceparent=TRACEPARENT), reports.put)
    reports.get(timeout=10)
    for key in ({}, {"integrity_key": b"another"}, {}):
        transfers.submit_load(load_order(range(4), into=10, traceparent=TRACEPARENT, **key), reports.put)
        reports.get(timeout=10)
    transfers.submit_load(load_order(range(4), into=10), reports.put)
    reports.get(timeout=10)
    transfers.close()
    made = spans.get_finished_spans()
    assert [(span.name, span.attributes["headrace.kv.outcome"]) for span in made if span.attributes] == [
        ("runner.kv.publish", "DONE"),
        ("runner.kv.load", "DONE"),
        ("runner.kv.load", "CORRUPT"),
        ("runner.kv.load", "MISS"),
    ]
    assert {format(span.context.trace_id, "032x") for span in made} == {TRACE}
    assert {format(span.parent.span_id, "016x") for span in made if span.parent} == {PARENT}
    is_error = [span.status.status_code is StatusCode.ERROR for span in made]
    assert is_error == [False, False, True, False], "a miss is no failure"
    assert made[0].attributes is not None
    assert made[0].attributes["headrace.kv.bytes"] == 4 * IDENTITY.block_bytes
