"""Each sequence leaves one span for its prefill and one for its decode, within its request's trace."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from services.runner.device import DeviceReading
from services.runner.sequence_spans import SequenceSpans
from services.runner.step import (
    Failure,
    FailureReason,
    NewSequence,
    Sampling,
    SequenceWork,
    StepOrder,
    StepOutcome,
    StepTimes,
)

TRACES = [f"{number:032x}" for number in (0xA1, 0xB2)]
PARENT = f"{7:016x}"
READING = DeviceReading(0.5, 1000)


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


def new(slot: int) -> NewSequence:
    """Returns a sequence of four tokens with a trace of its own."""
    return NewSequence(slot, f"r{slot}", (1, 2, 3, 4), 4, 0, (slot,), Sampling(), f"00-{TRACES[slot]}-{PARENT}-01")


def outcome(step: int, tokens: dict[int, int], failures: tuple[Failure, ...] = ()) -> StepOutcome:
    """Returns the outcome of a step that lasts from step*1000 to step*1000+600."""
    return StepOutcome(step, StepTimes(step * 1000, 100, 400, 100), 2, 8, tokens, failures)


def of_request(exporter: InMemorySpanExporter, slot: int) -> list[ReadableSpan]:
    """Returns the finished spans of a request's trace."""
    return [span for span in exporter.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACES[slot]]


def run_to_second_token(followed: SequenceSpans) -> None:
    """Prefills two sequences, the second in two chunks, and decodes once."""
    both = (SequenceWork(0, 4), SequenceWork(1, 2))
    followed.note_step(StepOrder(1, new_sequences=(new(0), new(1)), work=both), outcome(1, {0: 5}), READING)
    followed.note_step(StepOrder(2, work=(SequenceWork(0, 1), SequenceWork(1, 2))), outcome(2, {0: 6, 1: 5}), READING)


def test_prefill_ends_with_the_first_token_and_decode_with_the_last(spans: InMemorySpanExporter) -> None:
    followed = SequenceSpans(step_span_every=1000)
    run_to_second_token(followed)
    followed.note_step(StepOrder(3, finished_slots=(0, 1)), StepOutcome(3, StepTimes(3000)), READING)
    first = [(span.name, span.start_time, span.end_time) for span in of_request(spans, 0)]
    second = [(span.name, span.start_time, span.end_time) for span in of_request(spans, 1)]
    assert first == [("runner.prefill", 1000, 1600), ("runner.decode", 1600, 2600)]
    assert second == [("runner.prefill", 1000, 2600)], "a sequence that ends with its first token has no decode"
    span = of_request(spans, 0)[0]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.attributes is not None
    assert span.attributes["headrace.request_id"] == "r0"


def test_a_step_with_a_prefill_is_a_span_that_links_to_its_requests(spans: InMemorySpanExporter) -> None:
    followed = SequenceSpans(step_span_every=1000)
    run_to_second_token(followed)
    for step in range(3, 9):
        decode = (SequenceWork(0, 1), SequenceWork(1, 1))
        followed.note_step(StepOrder(step, work=decode), outcome(step, {0: 1, 1: 1}), READING)
    steps = [span for span in spans.get_finished_spans() if span.name == "step"]
    assert len(steps) == 2, "steps that only decode leave no span, but for one in many"
    assert [f"{link.context.trace_id:032x}" for link in steps[0].links] == TRACES


def test_a_failed_sequence_leaves_a_failed_span(spans: InMemorySpanExporter) -> None:
    followed = SequenceSpans(step_span_every=1000)
    failure = Failure(0, FailureReason.NAN_LOGITS, "not finite")
    order = StepOrder(1, new_sequences=(new(0),), work=(SequenceWork(0, 4),))
    followed.note_step(order, outcome(1, {}, (failure,)), READING)
    followed.note_step(StepOrder(2, finished_slots=(0,)), StepOutcome(2, StepTimes(2000)), READING)
    (span,) = of_request(spans, 0)
    assert (span.name, span.status.status_code) == ("runner.prefill", StatusCode.ERROR)


def test_a_lost_scheduler_ends_the_open_spans_as_failed(spans: InMemorySpanExporter) -> None:
    followed = SequenceSpans(step_span_every=1000)
    run_to_second_token(followed)
    followed.close("the stream ended")
    assert [(span.name, span.status.status_code) for span in of_request(spans, 0)] == [
        ("runner.prefill", StatusCode.UNSET),
        ("runner.decode", StatusCode.ERROR),
    ]
