import asyncio

import grpc
import pytest

from services.common.cluster_auth import ClusterAuthInterceptor, cluster_metadata
from services.common.errors import from_rpc_error

TOKEN = "correct horse"


async def _answer(request, _context):
    return request


async def _answer_last(requests, _context):
    last = b""
    async for request in requests:
        last = request
    return last


async def _stream(request, _context):
    yield request


async def _echo(requests, _context):
    async for request in requests:
        yield request


HANDLERS = {
    "One": ("unary_unary", _answer),
    "Many": ("unary_stream", _stream),
    "Last": ("stream_unary", _answer_last),
    "Echo": ("stream_stream", _echo),
}


async def _silence():
    """Opens a stream and says nothing, as a peer may that waits for the server's first word."""
    await asyncio.sleep(60)
    yield b""


async def _call(channel, method, metadata, requests):
    path = f"/test.v1.Echo/{method}"
    options = {"metadata": metadata, "timeout": 5}
    match method:
        case "One":
            return await channel.unary_unary(path)(b"x", **options)
        case "Many":
            return await channel.unary_stream(path)(b"x", **options).read()
        case "Last":
            return await channel.stream_unary(path)(requests, **options)
        case _:
            return await channel.stream_stream(path)(requests, **options).read()


@pytest.mark.parametrize("method", HANDLERS)
@pytest.mark.parametrize(
    "metadata",
    [(), (("authorization", "Bearer wrong"),), (("authorization", TOKEN),), (("authorization", ""),)],
    ids=["missing", "wrong", "no scheme", "empty"],
)
async def test_a_call_without_the_token_is_refused_whatever_its_kind(serve, method, metadata):
    channel = await serve(HANDLERS, [ClusterAuthInterceptor(TOKEN)])

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(2):
            await _call(channel, method, metadata, _silence())

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert caught.value.details() == "wrong or missing cluster token"
    assert from_rpc_error(caught.value).reason == "UNAUTHENTICATED"


@pytest.mark.parametrize("method", HANDLERS)
async def test_a_call_with_the_token_passes(serve, method):
    channel = await serve(HANDLERS, [ClusterAuthInterceptor(TOKEN)])

    async def requests():
        yield b"x"

    metadata = tuple(cluster_metadata(TOKEN).items())
    assert await _call(channel, method, metadata, requests()) == b"x"


async def test_health_is_open_to_probes(serve):
    channel = await serve(
        {"Check": ("unary_unary", _answer)}, [ClusterAuthInterceptor(TOKEN)], service="grpc.health.v1.Health"
    )

    assert await channel.unary_unary("/grpc.health.v1.Health/Check")(b"ok") == b"ok"


async def test_reflection_is_not_open(serve):
    channel = await serve(
        {"Info": ("unary_unary", _answer)}, [ClusterAuthInterceptor(TOKEN)], service="grpc.reflection.v1.Reflection"
    )

    with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
        await channel.unary_unary("/grpc.reflection.v1.Reflection/Info")(b"")


def test_without_a_token_calls_carry_nothing():
    assert cluster_metadata(None) == {}
