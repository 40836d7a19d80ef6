"""A call's span has the right parent, and calls of no interest have none."""

import asyncio

import grpc
import pytest
import structlog
from opentelemetry.trace import SpanKind

from services.common.trace_interceptor import TraceInterceptor
from services.common.tracing import client_span, context_from_traceparent, tracer

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
METADATA = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),)
NAME = "test.v1.Echo/Run"


@pytest.mark.parametrize("form", ["generator", "read and write"])
async def test_a_stream_both_ways_is_traced(serve, spans, form):
    async def generate(requests, _context):
        async for request in requests:
            yield request

    async def read_and_write(_requests, context):
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(request)

    behaviour = generate if form == "generator" else read_and_write
    channel = await serve({"Run": ("stream_stream", behaviour)}, [TraceInterceptor(is_internal=True)])
    call = channel.stream_stream(f"/{NAME}")(iter([b"1", b"2"]), metadata=METADATA)

    assert [message async for message in call] == [b"1", b"2"]
    await spans.all_ended()
    assert spans.named(NAME).attributes["rpc.response.status_code"] == "OK"


async def test_calls_at_the_same_time_do_not_share_a_context(serve, spans):
    both = asyncio.Barrier(2)

    async def run(request, _context):
        await both.wait()
        with tracer().start_as_current_span(f"work {request.decode()}"):
            await both.wait()
        return b""

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    parents = {name: f"00-{TRACE_ID}-000000000000000{name}-01" for name in "12"}
    call = channel.unary_unary(f"/{NAME}")
    await asyncio.gather(*(call(n.encode(), metadata=(("traceparent", p),)) for n, p in parents.items()))

    await spans.all_ended()
    servers = {span.context.span_id: span for span in spans.ended if span.name == NAME}
    for name in "12":
        server = servers[spans.named(f"work {name}").parent.span_id]
        assert server.parent.span_id == int(name)


@pytest.mark.parametrize("header", ["", "00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" * 40])
async def test_a_malformed_traceparent_starts_a_trace_of_its_own(serve, spans, header):
    async def run(request, _context):
        return request

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    await channel.unary_unary(f"/{NAME}")(b"", metadata=(("traceparent", header),))

    await spans.all_ended()
    assert spans.named(NAME).parent is None


async def test_an_unsampled_parent_is_respected(serve, spans):
    async def run(request, _context):
        return request

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    await channel.unary_unary(f"/{NAME}")(b"", metadata=(("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-00"),))

    assert spans.started == []


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("grpc.health.v1.Health", "Check"),
        ("grpc.reflection.v1alpha.ServerReflection", "Info"),
        ("headrace.v1.SchedulerService", "Attach"),
        ("headrace.v1.SchedulerService", "GetLoads"),
    ],
)
async def test_calls_of_no_interest_leave_no_span(serve, spans, service, method):
    async def run(request, _context):
        return request

    channel = await serve({method: ("unary_unary", run)}, [TraceInterceptor(is_internal=True)], service=service)
    await channel.unary_unary(f"/{service}/{method}")(b"", metadata=METADATA)

    assert spans.started == []


async def test_an_unknown_method_is_still_unimplemented(serve, spans):
    channel = await serve({}, [TraceInterceptor(is_internal=True)])

    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
        await channel.unary_unary(f"/{NAME}")(b"")
    assert spans.started == []


async def test_a_client_span_is_the_parent_of_the_server_span(serve, spans):
    async def run(request, _context):
        return request

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=True)])
    with client_span("client call", context_from_traceparent(METADATA[0][1])) as (_, metadata):
        await channel.unary_unary(f"/{NAME}")(b"", metadata=metadata)

    await spans.all_ended()
    client, server = spans.named("client call"), spans.named(NAME)
    assert server.parent.span_id == client.context.span_id
    assert client.kind is SpanKind.CLIENT
    assert client.parent.span_id == int(PARENT_ID, 16)


@pytest.mark.parametrize("is_internal", [True, False])
async def test_an_internal_call_names_its_request_in_span_and_logs_and_a_client_cannot(serve, spans, is_internal):
    bound = []

    async def run(request, _context):
        bound.append(structlog.contextvars.get_contextvars().get("request_id"))
        return request

    channel = await serve({"Run": ("unary_unary", run)}, [TraceInterceptor(is_internal=is_internal)])
    with client_span("client call", context_from_traceparent(""), request_id="r-1") as (_, metadata):
        await channel.unary_unary(f"/{NAME}")(b"", metadata=metadata)

    await spans.all_ended()
    expected = "r-1" if is_internal else None
    assert spans.named("client call").attributes["headrace.request_id"] == "r-1"
    assert spans.named(NAME).attributes.get("headrace.request_id") == expected
    assert bound == [expected]
    assert "request_id" not in structlog.contextvars.get_contextvars()
