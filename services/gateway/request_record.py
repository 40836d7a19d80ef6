"""What one request leaves behind: stage spans, attributes of the call's span, log lines and metrics."""

import asyncio
import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from headrace.v1.generation_pb2 import Timing, Usage
from services.common.errors import ServiceError
from services.common.tracing import mark_failed, tracer
from services.gateway.caller import Caller
from services.gateway.metrics import GatewayMetrics

log = structlog.get_logger()

CLIENT_GONE = "CLIENT_GONE"


@dataclass(slots=True)
class RequestRecord:
    """A request's story while it is written."""

    caller: Caller
    parent: Context
    metrics: GatewayMetrics
    operation: str
    request_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The caller's own, for its traces; set once they are checked."""
    model: str = ""
    started: float = field(default_factory=time.monotonic)
    first_token_at: float | None = None
    last_token_at: float | None = None
    detokenize_seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    code: str = "OK"
    error_reason: str = ""

    @property
    def elapsed_seconds(self) -> float:
        """Returns the time since the request's receipt."""
        return time.monotonic() - self.started

    def note_tokens(self, detokenize_seconds: float) -> None:
        """Notes that tokens have come and how long turning them into text took."""
        self.last_token_at = time.monotonic()
        self.first_token_at = self.first_token_at or self.last_token_at
        self.detokenize_seconds += detokenize_seconds

    def complete(self, timing: Timing) -> Timing:
        """Puts the times that only the gateway can measure into the scheduler's timing."""
        timing.total.FromNanoseconds(int(self.elapsed_seconds * 1e9))
        if self.first_token_at is not None:
            timing.time_to_first_token.FromNanoseconds(int((self.first_token_at - self.started) * 1e9))
        return timing

    @contextmanager
    def stage(self, name: str) -> Iterator[Span]:
        """Wraps one stage in a span and ends it with a log line."""
        began = time.monotonic()
        failure: str | None = None
        span = tracer().start_span(name, self.parent, attributes={"headrace.request_id": self.request_id})
        try:
            yield span
        except BaseException as error:
            failure = error.reason if isinstance(error, ServiceError) else type(error).__name__
            mark_failed(span, failure, str(error))
            raise
        finally:
            span.end()
            self.log_line(name.upper(), time.monotonic() - began, error_reason=failure)

    @contextmanager
    def written(self) -> Iterator[None]:
        """Writes the record when the request ends, however it ends."""
        self.metrics.open_requests.inc()
        try:
            yield
        except ServiceError as error:
            self.code, self.error_reason = error.code.name, error.reason
            raise
        except (asyncio.CancelledError, GeneratorExit):
            # A reader may leave after the last chunk; then nothing was cut short.
            if not self.finish_reason:
                self.code, self.error_reason = "CANCELLED", CLIENT_GONE
            raise
        except BaseException:
            self.code, self.error_reason = "INTERNAL", "INTERNAL"
            raise
        finally:
            self.metrics.open_requests.dec()
            self._write_span()
            self._write_metrics()
            self._write_log()

    def log_line(self, stage: str, seconds: float, **values: object) -> None:
        """Writes one log line about a stage."""
        span = trace.get_current_span(self.parent).get_span_context()
        log.info(
            "request",
            stage=stage,
            request_id=self.request_id,
            trace_id=trace.format_trace_id(span.trace_id) if span.is_valid else None,
            duration_ms=round(seconds * 1000, 3),
            **values,
        )

    def _write_span(self) -> None:
        span = trace.get_current_span(self.parent)
        span.set_attributes(
            {
                "headrace.request_id": self.request_id,
                "gen_ai.operation.name": self.operation,
                "gen_ai.provider.name": "headrace",
                "gen_ai.request.model": self.model,
                "gen_ai.response.id": self.request_id,
                "gen_ai.response.finish_reasons": (self.finish_reason or self.code,),
                "gen_ai.usage.input_tokens": self.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": self.usage.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": self.usage.cached_tokens_l1 + self.usage.cached_tokens_l2,
            }
        )
        span.set_attributes({f"headrace.label.{key}": value for key, value in self.labels.items()})
        if self.first_token_at is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", self.first_token_at - self.started)
        if self.detokenize_seconds and self.first_token_at and self.last_token_at:
            self._write_detokenize(self.first_token_at, self.last_token_at)

    def _write_detokenize(self, first: float, last: float) -> None:
        """One span from the first token to the last: a span per token would drown the trace."""
        to_wall_clock = time.time_ns() - time.monotonic_ns()
        span = tracer().start_span("detokenize", self.parent, start_time=int(first * 1e9) + to_wall_clock)
        span.set_attribute("headrace.request_id", self.request_id)
        span.set_attribute("headrace.busy_seconds", self.detokenize_seconds)
        span.end(int(last * 1e9) + to_wall_clock)
        self.log_line("DETOKENIZE", self.detokenize_seconds, tokens=self.usage.completion_tokens)

    def _write_metrics(self) -> None:
        metrics, tokens = self.metrics, self.usage.completion_tokens
        metrics.requests.labels(self.model, self.code, self.finish_reason).inc()
        metrics.request_duration.labels(self.model).observe(self.elapsed_seconds)
        metrics.prompt_tokens.labels(self.model).inc(self.usage.prompt_tokens)
        metrics.output_tokens.labels(self.model).inc(tokens)
        metrics.cached_tokens.labels(self.model, "l1").inc(self.usage.cached_tokens_l1)
        metrics.cached_tokens.labels(self.model, "l2").inc(self.usage.cached_tokens_l2)
        if self.first_token_at is None or self.last_token_at is None:
            return
        metrics.time_to_first_token.labels(self.model).observe(self.first_token_at - self.started)
        if tokens > 1:
            per_token = (self.last_token_at - self.first_token_at) / (tokens - 1)
            metrics.time_per_output_token.labels(self.model).observe(per_token)

    def _write_log(self) -> None:
        first = None if self.first_token_at is None else round((self.first_token_at - self.started) * 1000, 3)
        self.log_line(
            "DONE",
            self.elapsed_seconds,
            model=self.model,
            tenant_hash=hashlib.sha256(self.caller.tenant.encode()).hexdigest()[:12],
            code=self.code,
            error_reason=self.error_reason or None,
            finish_reason=self.finish_reason or None,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens_l1 + self.usage.cached_tokens_l2,
            completion_tokens=self.usage.completion_tokens,
            time_to_first_token_ms=first,
            detokenize_ms=round(self.detokenize_seconds * 1000, 3),
        )
