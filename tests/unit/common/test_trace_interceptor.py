"""Every call gives one span that ends with the call's real outcome, whatever the handler looks like."""

import asyncio

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from services.common.errors import ModelNotFound, errors_as_status
from services.common.trace_interceptor import TraceInterceptor
from services.common.tracing import tracer

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
METADATA = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),)
NAME = "test.v1.Echo/Run"


class Streams:
    """One endless or failing stream, as a generator and as a handler that writes."""

    def __init__(self) -> None:
        self.is_cleaned_up = asyncio.Event()

    async def body(self, send):
        try:
            await send(b"1")
            await send(b"2")
            await self.go_on()
        finally:
            self.is_cleaned_up.set()

    async def go_on(self):
        await asyncio.sleep(60)

    async def generate(self, _request, context):
        async with errors_as_status(context):
            try:
                yield b"1"
                yield b"2"
                await self.go_on()
            finally:
                self.is_cleaned_up.set()

    async def write(self, _request, context):
        async with errors_as_status(context):
            await self.body(context.write)


def streams_of(kind: type[Streams], form: str) -> tuple[Streams, object]:
    streams = kind()
    return streams, getattr(streams, form)


@pytest.fixture
def call(serve):
    """Returns a function that serves one streaming handler with the interceptor and opens a call to it."""

    async def open_call(behaviour, **options):
        channel = await serve({"Run": ("unary_stream", behaviour)}, [TraceInterceptor(is_internal=True)])
        return channel.unary_stream(f"/{NAME}")(b"", metadata=METADATA, **options)

    return open_call


forms = pytest.mark.parametrize("form", ["generate", "write"])


@forms
async def test_a_stream_that_ends_well_is_ok(call, spans, form):
    class Ends(Streams):
        async def go_on(self):
            pass

    streams, behaviour = streams_of(Ends, form)
    stream = await call(behaviour)

    assert [message async for message in stream] == [b"1", b"2"]
    await spans.all_ended()
    span = spans.named(NAME)
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": NAME,
        "rpc.response.status_code": "OK",
    }
    assert [event.name for event in span.events] == ["first message"]
    assert span.kind is SpanKind.SERVER
    assert trace.format_trace_id(span.context.trace_id) == TRACE_ID
    assert trace.format_span_id(span.parent.span_id) == PARENT_ID
    assert span.parent.is_remote
    assert streams.is_cleaned_up.is_set()


@forms
async def test_a_client_that_cancels_is_recorded_as_cancelled(call, spans, form):
    streams, behaviour = streams_of(Streams, form)
    stream = await call(behaviour)
    await stream.read()
    stream.cancel()

    async with asyncio.timeout(2):
        await streams.is_cleaned_up.wait()
    await spans.all_ended()
    assert_failed(spans.named(NAME), "CANCELLED")


@forms
async def test_a_cancellation_cleans_up_while_the_client_does_not_read(call, spans, form):
    """The handler then waits in grpc's write, not in its own code."""

    class Floods(Streams):
        def __init__(self):
            super().__init__()
            self.is_stuck = asyncio.Event()
            self.tasks = []

        async def body(self, send):
            try:
                while True:
                    asyncio.get_running_loop().call_later(0.1, self.is_stuck.set)
                    await send(b"x" * 1_000_000)
            finally:
                self.is_cleaned_up.set()

        async def generate(self, _request, _context):
            try:
                self.tasks.append(asyncio.current_task())
                while True:
                    asyncio.get_running_loop().call_later(0.1, self.is_stuck.set)
                    yield b"x" * 1_000_000
            finally:
                self.tasks.append(asyncio.current_task())
                self.is_cleaned_up.set()

    streams, behaviour = streams_of(Floods, form)
    stream = await call(behaviour)
    async with asyncio.timeout(5):
        await streams.is_stuck.wait()
        stream.cancel()
        await streams.is_cleaned_up.wait()
    await spans.all_ended()
    assert_failed(spans.named(NAME), "CANCELLED")
    # In the call's own task: the garbage collector would do it in another one, some time later.
    assert len(set(streams.tasks)) <= 1


@forms
async def test_a_deadline_is_recorded_as_a_deadline(call, spans, form):
    streams, behaviour = streams_of(Streams, form)
    stream = await call(behaviour, timeout=0.2)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [message async for message in stream]
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(2):
        await streams.is_cleaned_up.wait()
    await spans.all_ended()
    assert_failed(spans.named(NAME), "DEADLINE_EXCEEDED")


@forms
async def test_a_handler_that_aborts_is_recorded_with_its_code_and_text(call, spans, form):
    class Refuses(Streams):
        async def go_on(self):
            raise ModelNotFound("no gpt-9 here")

    _, behaviour = streams_of(Refuses, form)
    stream = await call(behaviour)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [message async for message in stream]
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    await spans.all_ended()
    assert_failed(spans.named(NAME), "NOT_FOUND", "no gpt-9 here")


@pytest.mark.parametrize("kind", ["unary_unary", "stream_unary"])
async def test_a_handler_that_raises_is_recorded_as_unknown(serve, spans, kind):
    async def run(_request, _context):
        raise KeyError("bug")

    channel = await serve({"Run": (kind, run)}, [TraceInterceptor(is_internal=True)])
    request = b"" if kind == "unary_unary" else iter([b""])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(channel, kind)(f"/{NAME}")(request, metadata=METADATA)

    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    await spans.all_ended()
    assert_failed(spans.named(NAME), "UNKNOWN")


async def test_a_streaming_handler_that_raises_is_recorded_as_unknown(call, spans):
    async def run(_request, _context):
        yield b"1"
        raise KeyError("bug")

    stream = await call(run)
    with pytest.raises(grpc.aio.AioRpcError):
        [message async for message in stream]

    await spans.all_ended()
    assert_failed(spans.named(NAME), "UNKNOWN")


async def test_a_code_that_the_handler_sets_without_raising_counts(serve, spans):
    async def run(_request, context):
        context.set_code(grpc.StatusCode.ALREADY_EXISTS)
        context.set_details("twice")
        return b""

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary(f"/{NAME}")(b"")

    await spans.all_ended()
    assert_failed(spans.named(NAME), "ALREADY_EXISTS", "twice")


async def test_a_unary_call_that_the_client_cancels(serve, spans):
    started = asyncio.Event()

    async def run(_request, _context):
        started.set()
        await asyncio.sleep(60)

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    call = channel.unary_unary(f"/{NAME}")(b"", timeout=30)
    async with asyncio.timeout(2):
        await started.wait()
        call.cancel()

    await spans.all_ended()
    assert_failed(spans.named(NAME), "CANCELLED")


@forms
async def test_spans_within_a_handler_are_children_of_its_call(call, spans, form):
    """The context is attached once, and is there after every message."""

    class Works(Streams):
        async def go_on(self):
            with tracer().start_as_current_span("late work"):
                await asyncio.sleep(0)

    _, behaviour = streams_of(Works, form)
    stream = await call(behaviour)
    [message async for message in stream]

    await spans.all_ended()
    assert spans.named("late work").parent.span_id == spans.named(NAME).context.span_id


def assert_failed(span, code, description=None):
    assert span.attributes["rpc.response.status_code"] == code
    assert span.attributes["error.type"] == code
    assert span.status.status_code is StatusCode.ERROR
    assert description is None or span.status.description == description
