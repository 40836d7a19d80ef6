"""A real grpc.aio server for handlers written in a test, and every span that starts and ends."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from polling import until

SERVICE = "test.v1.Echo"

KINDS: dict[str, Callable[..., Any]] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class SpanRecord(SpanProcessor):
    """Counts spans that started and keeps those that ended."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def named(self, name: str) -> ReadableSpan:
        """Returns the one ended span of this name."""
        found = [span for span in self.ended if span.name == name]
        assert len(found) == 1, f"{len(found)} spans {name} among {[span.name for span in self.ended]}"
        return found[0]

    async def all_ended(self) -> None:
        """Waits for every span to end; fails for one that leaks."""
        await until(lambda: len(self.ended) == len(self.started), 5, "not every span was ended")


@pytest.fixture
def spans() -> Iterator[SpanRecord]:
    """Records the spans of one test."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(shutdown_on_exit=False)
        trace.set_tracer_provider(provider)
    record = SpanRecord()
    provider.add_span_processor(record)
    yield record
    remaining = tuple(item for item in provider._active_span_processor._span_processors if item is not record)
    provider._active_span_processor._span_processors = remaining


Serve = Callable[..., Awaitable[grpc.aio.Channel]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Returns a function that serves handlers, {"Method": (kind, behaviour)}, and gives a channel to them."""
    numbers = itertools.count()
    async with AsyncExitStack() as stack:

        async def start(
            handlers: dict[str, tuple[str, Any]],
            interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
            service: str = SERVICE,
        ) -> grpc.aio.Channel:
            server = grpc.aio.server(interceptors=interceptors)
            methods = {name: KINDS[kind](behaviour) for name, (kind, behaviour) in handlers.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
            address = f"unix:{tmp_path}/s{next(numbers)}.sock"
            server.add_insecure_port(address)
            await server.start()
            stack.push_async_callback(server.stop, None)
            return await stack.enter_async_context(grpc.aio.insecure_channel(address))

        yield start
