"""A request's stages as spans: one each, under its Submit call, ended with what really happened."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from memory_kvstore import memory_kvstore
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from polling import until
from scheduler_client import gateway, start_message
from scheduler_process import local_scheduler
from scripted_runner import ScriptedRunner, ScriptedStore, scripted_hello

from services.scheduler.config import SchedulerConfig

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
METADATA = (("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01"),)
PROMPT = list(range(5, 30))
SUBMIT = "headrace.v1.SchedulerService/Submit"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


def of_trace(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Returns the spans of the test's own trace by name; none comes twice."""
    named: dict[str, ReadableSpan] = {}
    for span in exporter.get_finished_spans():
        if trace.format_trace_id(span.context.trace_id) == TRACE_ID:
            assert span.name not in named, f"{span.name} twice"
            named[span.name] = span
    return named


async def test_every_stage_is_one_span_under_the_submit_call(folder: Path, spans: InMemorySpanExporter) -> None:
    """OBS-5."""
    store, hello = ScriptedStore(), scripted_hello(has_l2=True)
    async with (
        memory_kvstore(folder) as (address, kvstore),
        local_scheduler(folder, SchedulerConfig(kvstore=address)) as scheduler,
        gateway(scheduler.address) as gate,
    ):
        async with ScriptedRunner(scheduler.address, hello, store=store):
            await gate.ask(PROMPT, 4)
            await until(lambda: len(kvstore.stored) == 7)
        async with ScriptedRunner(scheduler.address, hello, store=store) as runner:
            await runner.attached.wait()
            call = gate.stub.Submit(metadata=METADATA)
            await call.write(start_message(PROMPT, 4, request_id="traced"))
            await gate.read(call)
            await until(lambda: SUBMIT in of_trace(spans))
            (new,) = (new for plan in runner.plans for new in plan.new_sequences if new.request_id == "traced")

    named = of_trace(spans)
    submit = named[SUBMIT]
    assert submit.parent is not None
    assert trace.format_span_id(submit.parent.span_id) == SPAN_ID
    for name in ("kv.lookup", "queue", "kv.load", "prefill", "decode"):
        span = named[name]
        assert span.parent is not None
        assert span.parent.span_id == submit.context.span_id
        assert span.attributes is not None
        assert span.attributes["headrace.request_id"] == "traced"
        assert span.status.status_code is StatusCode.UNSET
        assert submit.start_time is not None
        assert span.start_time is not None
        assert span.start_time >= submit.start_time - 1_000_000
    assert named["kv.lookup"].kind is SpanKind.CLIENT
    assert trace.format_span_id(submit.context.span_id) in new.traceparent


async def test_a_cancelled_request_ends_its_open_stage_with_an_error(folder: Path, spans: InMemorySpanExporter) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address) as runner,
        gateway(scheduler.address) as gate,
    ):
        await runner.attached.wait()
        call = gate.stub.Submit(metadata=METADATA)
        await call.write(start_message(PROMPT, 200))
        await gate.read(call, tokens=2)
        runner.is_open.clear()
        call.cancel()
        await until(lambda: SUBMIT in of_trace(spans))
        runner.is_open.set()

    named = of_trace(spans)
    assert named["decode"].status.status_code is StatusCode.ERROR
    assert named["prefill"].status.status_code is StatusCode.UNSET
    assert named["decode"].attributes is not None
    assert named["decode"].attributes["error.type"] == "CANCELLED"


async def test_a_failed_request_says_so_in_its_stage(folder: Path, spans: InMemorySpanExporter) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address) as runner,
        gateway(scheduler.address) as gate,
    ):
        await runner.attached.wait()
        runner.engine.failing.add("bad")
        call = gate.stub.Submit(metadata=METADATA)
        await call.write(start_message(PROMPT, 20, request_id="bad"))
        with pytest.raises(grpc.aio.AioRpcError):
            await gate.read(call)
        await until(lambda: SUBMIT in of_trace(spans))

    named = of_trace(spans)
    assert named["prefill"].attributes is not None
    assert named["prefill"].attributes["error.type"] == "GENERATION_FAILED"
    assert named[SUBMIT].status.status_code is StatusCode.ERROR
