"""One log line per event: JSON for machines, columns on a terminal; trace and request ids on every line."""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import psutil
import structlog
from opentelemetry import trace

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class ProcessMemory:
    """The resident size of this process, read at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._read_at = float("-inf")
        self._bytes = 0

    def read_bytes(self) -> int:
        """Returns the resident set size in bytes."""
        now = time.monotonic()
        if now - self._read_at >= 1.0:
            self._bytes, self._read_at = int(self._process.memory_info().rss), now
        return self._bytes


def configure_logs(service: str, log_format: str, log_level: str) -> None:
    """Sets up structlog and routes the standard library's loggers into the same stream."""
    is_console = log_format == "console" or (log_format == "auto" and sys.stdout.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if is_console else structlog.processors.JSONRenderer()
    level = _LEVELS.get(log_level, 20)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        _Context(service),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info if not is_console else _pass,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.root.handlers = [handler]
    logging.root.setLevel(max(level, logging.WARNING))


class _Context:
    """Adds what every line carries: the service, the current trace, and the measures of the process."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._memory = ProcessMemory()

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = self._service
        context = trace.get_current_span().get_span_context()
        if context.is_valid and "trace_id" not in event:
            event["trace_id"] = trace.format_trace_id(context.trace_id)
            event["span_id"] = trace.format_span_id(context.span_id)
        if "stage" in event:
            event.setdefault("batch_size", None)
            event.setdefault("gpu_util", None)
            event.setdefault("mem_used", self._memory.read_bytes())
        return event


def _pass(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event
