"""GRPC-1 and GRPC-2: limits and pings of channels and servers agree."""

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest

from services.common.grpc_options import CLIENT_OPTIONS, MESSAGE_BYTES, SERVER_OPTIONS

CLIENT, SERVER = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)


def test_a_server_allows_pings_twice_as_often_as_clients_send_them():
    """GRPC-2."""
    assert SERVER["grpc.http2.min_ping_interval_without_data_ms"] <= CLIENT["grpc.keepalive_time_ms"] / 2


@pytest.mark.parametrize("name", ["grpc.keepalive_permit_without_calls", "grpc.http2.max_pings_without_data"])
def test_both_sides_agree_on_pings_without_calls(name):
    """GRPC-2."""
    assert CLIENT[name] == SERVER[name]


def test_both_sides_take_messages_of_one_size():
    """GRPC-1."""
    for name in ("grpc.max_send_message_length", "grpc.max_receive_message_length"):
        assert CLIENT[name] == SERVER[name] == MESSAGE_BYTES


def test_neighbours_are_not_called_through_a_proxy():
    assert CLIENT["grpc.enable_http_proxy"] == 0


@pytest.fixture
async def start():
    """Returns a function that serves one method with the given options and gives its address."""
    async with AsyncExitStack() as stack:

        async def start_server(handler, options):
            server = grpc.aio.server(options=list(options.items()))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.v1.Echo", {"Run": handler}),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, None)
            return f"127.0.0.1:{port}"

        yield start_server


@pytest.mark.parametrize("size", [4_194_304, 4_194_305, MESSAGE_BYTES])
async def test_a_message_beyond_4_mebibytes_passes_both_ways(start, size):
    """GRPC-1."""

    async def echo(request, _context):
        return request

    address = await start(grpc.unary_unary_rpc_method_handler(echo), SERVER)
    async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        answer = await channel.unary_unary("/test.v1.Echo/Run")(b"x" * size)

    assert len(answer) == size


async def test_a_silent_stream_survives_the_pings_of_its_client(start):
    """GRPC-2, everything forty times as fast; a server of stock settings shows that the test can fail."""
    release = asyncio.Event()

    async def wait_long(_request, context):
        await release.wait()
        await context.write(b"late")

    handler = grpc.unary_stream_rpc_method_handler(wait_long)
    fast_server = SERVER | {"grpc.http2.min_ping_interval_without_data_ms": 250, "grpc.keepalive_time_ms": 500}
    fast_client = list((CLIENT | {"grpc.keepalive_time_ms": 500}).items())
    async with (
        grpc.aio.insecure_channel(await start(handler, fast_server), options=fast_client) as to_ours,
        grpc.aio.insecure_channel(await start(handler, {}), options=fast_client) as to_stock,
    ):
        ours_call = to_ours.unary_stream("/test.v1.Echo/Run")(b"")
        stock_call = to_stock.unary_stream("/test.v1.Echo/Run")(b"")
        async with asyncio.timeout(20):
            with pytest.raises(grpc.aio.AioRpcError, match=r"(?i)too.many.pings"):
                await stock_call.read()
        release.set()
        assert await ours_call.read() == b"late"
