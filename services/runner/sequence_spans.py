"""The runner's part of a request's trace: one span for its prefill, one for its decode, and spans of some steps."""

from dataclasses import dataclass

import structlog
from opentelemetry import trace
from opentelemetry.trace import Link, Span

from services.common.tracing import context_from_traceparent, mark_failed, tracer
from services.runner.device import DeviceReading
from services.runner.step import Failure, NewSequence, StepOrder, StepOutcome

log = structlog.get_logger()


@dataclass(slots=True)
class _Story:
    """What is known about a sequence so far."""

    request_id: str
    traceparent: str
    trace_id: str
    tokens: int
    stage: str = "PREFILL"
    started: int | None = None
    ended: int = 0
    sampled: int = 0
    steps: int = 0
    batch_sequences: int = 0
    utilization: float | None = None


class SequenceSpans:
    """Follows the steps of one attachment; spans are written when their stage has ended."""

    def __init__(self, step_span_every: int) -> None:
        self._every = step_span_every
        self._stories: dict[int, _Story] = {}

    def note_step(self, order: StepOrder, outcome: StepOutcome, reading: DeviceReading) -> None:
        """Takes in a computed step."""
        for slot in order.finished_slots:
            self._finish(slot, reading)
        for new in order.new_sequences:
            self._stories[new.slot] = _story(new)
        if not outcome.batch_sequences:
            return
        times = outcome.times
        ended = times.started_unix_nanoseconds + (
            times.prepare_nanoseconds + times.forward_nanoseconds + times.sample_nanoseconds
        )
        is_prefill = any(item.tokens > 1 for item in order.work)
        if is_prefill or order.step % self._every == 0:
            self._write_step(order, outcome, ended)
        for item in order.work:
            story = self._stories.get(item.slot)
            if story is None:
                continue
            story.started = story.started or times.started_unix_nanoseconds
            story.ended = ended
            story.steps += 1
            story.batch_sequences, story.utilization = outcome.batch_sequences, reading.utilization
            if item.slot in outcome.token_ids:
                story.sampled += 1
                if story.stage == "PREFILL":
                    self._end_stage(story, reading)
                    story.stage, story.started, story.steps = "DECODE", ended, 0
        for failure in outcome.failures:
            self._fail(failure, reading)

    def close(self, cause: str) -> None:
        """Ends what still runs because the attachment has ended."""
        for story in self._stories.values():
            if story.started is not None and story.steps:
                mark_failed(span := _open_span(story), "DETACHED", cause)
                span.end(story.ended)
        self._stories.clear()

    def _finish(self, slot: int, reading: DeviceReading) -> None:
        story = self._stories.pop(slot, None)
        if story is not None and story.steps:
            self._end_stage(story, reading)

    def _fail(self, failure: Failure, reading: DeviceReading) -> None:
        story = self._stories.pop(failure.slot, None)
        if story is not None:
            self._end_stage(story, reading, failure)

    def _end_stage(self, story: _Story, reading: DeviceReading, failure: Failure | None = None) -> None:
        span = _open_span(story)
        if failure is not None:
            mark_failed(span, failure.reason.value, failure.message)
        span.end(story.ended)
        write = log.info if failure is None else log.error
        write(
            "stage ended" if failure is None else failure.message,
            stage=story.stage,
            request_id=story.request_id,
            trace_id=story.trace_id,
            # Of its own last step: the one that drops it may be empty.
            batch_size=story.batch_sequences,
            gpu_util=story.utilization,
            mem_used=reading.memory_used_bytes,
            duration_ms=round((story.ended - (story.started or story.ended)) / 1e6, 3),
            tokens=story.tokens if story.stage == "PREFILL" else story.sampled,
            steps=story.steps,
        )

    def _write_step(self, order: StepOrder, outcome: StepOutcome, ended: int) -> None:
        links = []
        for item in order.work:
            story = self._stories.get(item.slot)
            if story is not None and story.traceparent:
                parent = trace.get_current_span(context_from_traceparent(story.traceparent))
                links.append(Link(parent.get_span_context()))
        attributes = {
            "headrace.step": order.step,
            "headrace.batch_sequences": outcome.batch_sequences,
            "headrace.batch_tokens": outcome.batch_tokens,
        }
        span = tracer().start_span(
            "step", links=links, attributes=attributes, start_time=outcome.times.started_unix_nanoseconds
        )
        span.end(ended)


def _story(new: NewSequence) -> _Story:
    context = trace.get_current_span(context_from_traceparent(new.traceparent)).get_span_context()
    trace_id = trace.format_trace_id(context.trace_id) if context.is_valid else ""
    return _Story(new.request_id, new.traceparent, trace_id, len(new.token_ids) - new.computed_tokens)


def _open_span(story: _Story) -> Span:
    return tracer().start_span(
        f"runner.{story.stage.lower()}",
        context_from_traceparent(story.traceparent),
        attributes={
            "headrace.request_id": story.request_id,
            "headrace.tokens": story.tokens if story.stage == "PREFILL" else story.sampled,
            "headrace.steps": story.steps,
        },
        start_time=story.started,
    )
