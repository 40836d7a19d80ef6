"""One log line per event: JSON for machines, columns on a terminal; trace and request ids on every line."""

import contextlib
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
    is_terminal = sys.stdout.isatty()
    is_console = log_format == "console" or (log_format == "auto" and is_terminal)
    level = _LEVELS[log_level]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_console else "iso", utc=not is_console, key="ts"),
        _Context(service),
        structlog.processors.StackInfoRenderer(),
    ]
    output: list[Any] = _console_output(is_terminal) if is_console else _JSON_OUTPUT
    structlog.configure(
        processors=[*shared, *output],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_LineLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *output],
        )
    )
    logging.root.handlers = [handler]
    logging.root.setLevel(max(level, logging.WARNING))
    # A full disk must not turn every line of a library into a traceback.
    logging.raiseExceptions = False


_JSON_OUTPUT = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _console_output(is_terminal: bool) -> list[Any]:
    # Plain tracebacks: the pretty ones print local variables, and so the clients' prompts and keys.
    formatter = structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(
        colors=is_terminal, timestamp_key="ts", sort_keys=False, exception_formatter=formatter
    )
    return [_without_absent, renderer]


def _without_absent(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: value for key, value in event.items() if value is not None}


class _LineLogger:
    """Writes whole lines to standard output; a full disk or a closed pipe costs the line, never the request."""

    def __init__(self, *_names: object) -> None:
        self._file = sys.stdout

    def msg(self, line: str) -> None:
        """Writes one line."""
        with contextlib.suppress(OSError, ValueError):
            self._file.write(line + "\n")
            self._file.flush()

    debug = info = warning = error = exception = critical = msg


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
