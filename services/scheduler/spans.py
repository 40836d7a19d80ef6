"""Spans and log lines of one request's stages, made from the scheduler's own clock."""

import time

import structlog
from opentelemetry import trace

from services.common.tracing import context_from_traceparent, mark_failed, tracer
from services.scheduler.request import Request
from services.scheduler.stage_clock import EndedStage, Stage

log = structlog.get_logger()


def _unix_nanoseconds(monotonic_seconds: float) -> int:
    return time.time_ns() - int((time.monotonic() - monotonic_seconds) * 1e9)


class StageRecorder:
    """Turns every ended stage of a request into a span under its Submit call, and a log line."""

    def __init__(self, request_id: str, traceparent: str) -> None:
        self._request_id = request_id
        self._parent = context_from_traceparent(traceparent)
        self._trace_id = trace.format_trace_id(trace.get_current_span(self._parent).get_span_context().trace_id)

    def __call__(self, ended: EndedStage) -> None:
        """Records one stage."""
        self._log(ended)
        if ended.stage is Stage.KV_LOOKUP:
            return  # its span is the call's own
        span = tracer().start_span(
            ended.stage.value,
            self._parent,
            start_time=_unix_nanoseconds(ended.started),
            attributes={"headrace.request_id": self._request_id},
        )
        if ended.load is not None:
            span.set_attribute("headrace.batch_size", ended.load.batch_size)
        if ended.failure is not None:
            mark_failed(span, ended.failure)
        span.end(_unix_nanoseconds(ended.ended))

    def _log(self, ended: EndedStage) -> None:
        log.info(
            "stage ended",
            stage=ended.stage.name,
            request_id=self._request_id,
            trace_id=self._trace_id,
            batch_size=ended.load.batch_size if ended.load is not None else None,
            gpu_util=ended.load.device_utilization if ended.load is not None else None,
            duration_ms=round((ended.ended - ended.started) * 1000, 3),
            error_reason=ended.failure,
        )

    def log_done(self, request: Request, now: float) -> None:
        """Writes the line that sums the request up."""
        log.info(
            "request done",
            stage="DONE",
            request_id=self._request_id,
            trace_id=self._trace_id,
            finish_reason=request.finish.name if request.finish is not None else None,
            error_reason=request.error.reason if request.error is not None else None,
            prompt_tokens=len(request.spec.prompt),
            completion_tokens=request.output_tokens,
            cached_tokens_l1=request.cached_tokens_l1,
            cached_tokens_l2=request.cached_tokens_l2,
            recomputed_tokens=request.recomputed_tokens,
            preemptions=request.preemptions,
            lost_runners=request.lost_runners,
            duration_ms=round((now - request.clock.submitted_at) * 1000, 3),
        )
