"""The HTTP server on a real port: clients that leave, dawdle, flood or speak no HTTP, and the end of the server."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from fake_generation import FakeGeneration, Script, ready
from polling import until

from services.common.config import ConfigError
from services.gateway.authentication import Authentication
from services.gateway.http import listener
from services.gateway.http.app import create_app
from services.gateway.http.server import HttpServer
from services.gateway.http.settings import HttpSettings

SETTINGS = HttpSettings(body_seconds=0.3, head_seconds=0.3, unread_seconds=0.3, ping_seconds=0.05)
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def serving(generation: FakeGeneration, settings: HttpSettings = SETTINGS) -> AsyncIterator[HttpServer]:
    app = create_app(generation, Authentication(None), ready(), settings)
    server = HttpServer(app, ["127.0.0.1:0"], settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.1)


def request_bytes(body: bytes, length: int | None = None, path: str = PATH) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


class Wire:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> str:
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)).decode()

    async def read_answer(self) -> tuple[int, dict]:
        head = await self.read_head()
        length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
        body = await asyncio.wait_for(self.reader.readexactly(int(length.split(":")[1])), 5)
        return int(head.split()[1]), json.loads(body)

    async def is_closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


@contextlib.asynccontextmanager
async def wire(server: HttpServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_leaves_before_the_first_byte_cancels(stream: bool) -> None:
    """CAN-1: in mid prefill, whole and streamed."""
    generation = FakeGeneration(Script(hold_after=0))
    async with serving(generation) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT | {"stream": stream}).encode()))
        await asyncio.wait_for(generation.started.wait(), 5)
        client.writer.transport.abort()
        await until(lambda: generation.running == 0)


async def test_client_that_leaves_a_stream_cancels() -> None:
    """CAN-1: after some chunks."""
    generation = FakeGeneration(Script(hold_after=2))
    async with serving(generation) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT | {"stream": True}).encode()))
        await client.reader.readuntil(b'"lo"')
        client.writer.close()
        await until(lambda: generation.running == 0)


async def test_idle_stream_sends_pings() -> None:
    generation = FakeGeneration(Script(hold_after=1))
    async with serving(generation) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT | {"stream": True}).encode()))
        for _ in range(3):
            await asyncio.wait_for(client.reader.readuntil(b": ping\n\n"), 5)
        generation.script.release.set()
        await asyncio.wait_for(client.reader.readuntil(b"data: [DONE]\n\n"), 5)


async def test_five_megabytes_are_refused_and_the_connection_goes_on() -> None:
    generation = FakeGeneration()
    async with serving(generation) as server, wire(server) as client:
        body = json.dumps({"prompt": "x" * 5_000_000}).encode()
        await client.send(request_bytes(body, path="/v1/completions"))
        status, answer = await client.read_answer()
        assert status == 413
        assert "4194304 bytes" in answer["error"]["message"]
        await client.send(request_bytes(json.dumps(CHAT).encode()))
        status, _ = await client.read_answer()
        assert status == 200


async def test_five_megabytes_are_refused_before_they_are_sent() -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(request_bytes(b"", length=5_000_000))
        status, _ = await client.read_answer()
        assert status == 413


async def test_large_prompt_within_the_limit_is_taken() -> None:
    generation = FakeGeneration()
    async with serving(generation, replace(SETTINGS, body_seconds=10)) as server, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.ports[0]}/v1/completions"
        response = await client.post(url, json={"prompt": "x" * 4_000_000})
        assert response.status_code == 200
        assert len(generation.requests[0].prompt.text) == 4_000_000


async def test_slow_body_ends_with_a_timeout() -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(request_bytes(b'{"mess', length=100))
        status, answer = await client.read_answer()
        assert (status, answer["error"]["code"]) == (408, "request_timeout")
        assert await client.is_closed_within(2)


async def test_client_that_leaves_during_its_body_is_no_error_of_ours() -> None:
    generation = FakeGeneration()
    async with serving(generation, replace(SETTINGS, body_seconds=10)) as server:
        async with wire(server) as client:
            await client.send(request_bytes(b'{"mess', length=100))
        async with wire(server) as client:
            await client.send(request_bytes(json.dumps(CHAT).encode()))
            assert (await client.read_answer())[0] == 200


@pytest.mark.parametrize("start", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nX-A: "])
async def test_head_that_does_not_end_is_cut(start: bytes) -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(start)
        assert await client.is_closed_within(2)


async def test_slow_second_head_on_a_connection_is_cut_too() -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT).encode()))
        assert (await client.read_answer())[0] == 200
        await client.send(b"GET /heal")
        assert await client.is_closed_within(2)


async def test_idle_connection_between_requests_is_kept() -> None:
    async with serving(FakeGeneration(), replace(SETTINGS, head_seconds=0.05)) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT).encode()))
        assert (await client.read_answer())[0] == 200
        assert not await client.is_closed_within(0.2)


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"hello\r\n\r\n", b"GET  / \r\n\r\n"])
async def test_what_is_not_http_gets_an_error_in_the_same_shape(junk: bytes) -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(junk)
        status, answer = await client.read_answer()
        assert (status, answer["error"]["code"]) == (400, "invalid_http")


async def test_large_head_is_refused() -> None:
    async with serving(FakeGeneration()) as server, wire(server) as client:
        await client.send(b"GET /health HTTP/1.1\r\nHost: h\r\nX-A: " + b"a" * 100_000)
        status, _ = await client.read_answer()
        assert status == 400


async def test_client_that_never_reads_is_cut_and_cancelled() -> None:
    """GRPC-9 over HTTP: what it leaves unread is bounded, and so is its time."""
    generation = FakeGeneration(Script(texts=["x" * 10_000] * 2000))
    async with serving(generation) as server, wire(server) as client:
        client.writer.transport.pause_reading()
        await client.send(request_bytes(json.dumps(CHAT | {"stream": True}).encode()))
        await asyncio.wait_for(generation.started.wait(), 5)
        await until(lambda: generation.running == 0, seconds=5)
        assert generation.ended.is_set()


async def test_client_that_reads_slowly_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is progress: here the client takes a byte between any two looks."""
    left = itertools.count(10**6, -1)
    looks = []
    monkeypatch.setattr(listener, "unread_bytes", lambda _transport: looks.append(1) or next(left))
    generation = FakeGeneration(Script(texts=["x" * 10_000] * 2000))
    settings = replace(SETTINGS, unread_seconds=0.02)
    async with serving(generation, settings) as server, wire(server) as client:
        client.writer.transport.pause_reading()
        await client.send(request_bytes(json.dumps(CHAT | {"stream": True}).encode()))
        await until(lambda: len(looks) > 5, seconds=5)
        assert generation.running == 1
        client.writer.transport.resume_reading()
        await asyncio.wait_for(client.reader.readuntil(b'"content":'), 5)


async def test_rubbish_after_an_early_answer_closes_the_connection() -> None:
    """The answer is out, so there is no second one to send; nor is it a bug of ours for the log."""
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    async with serving(FakeGeneration()) as server, wire(server) as client:
        head = f"POST {PATH} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head.encode())
        assert (await client.read_answer())[0] == 415
        await client.send(b"this is no chunk\r\n")
        assert await client.is_closed_within(2)
    assert problems == []


async def test_stop_lets_running_requests_finish() -> None:
    generation = FakeGeneration(Script(hold_after=1))
    async with serving(generation) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT | {"stream": True}).encode()))
        await asyncio.wait_for(generation.started.wait(), 5)
        stopping = asyncio.create_task(server.stop(5))
        await until(lambda: not _accepts(server))
        generation.script.release.set()
        await asyncio.wait_for(client.reader.readuntil(b"data: [DONE]\n\n"), 5)
        await stopping


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_ends_what_does_not_finish_in_time_with_an_error(stream: bool) -> None:
    generation = FakeGeneration(Script(hold_after=1))
    async with serving(generation) as server, wire(server) as client:
        await client.send(request_bytes(json.dumps(CHAT | {"stream": stream}).encode()))
        await asyncio.wait_for(generation.started.wait(), 5)
        await asyncio.wait_for(server.stop(0.1), 5)
        rest = await asyncio.wait_for(client.reader.read(), 5)
        assert b"shutting down" in rest
        assert b"[DONE]" not in rest
        assert generation.running == 0


async def test_taken_port_is_a_configuration_error() -> None:
    generation = FakeGeneration()
    async with serving(generation) as server:
        other = HttpServer(create_app(generation, Authentication(None), ready()), [f"127.0.0.1:{server.ports[0]}"])
        with pytest.raises(ConfigError, match="cannot serve HTTP"):
            await other.start()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
async def test_malformed_address_is_a_configuration_error(address: str) -> None:
    server = HttpServer(create_app(FakeGeneration(), Authentication(None), ready()), [address])
    with pytest.raises(ConfigError, match="cannot serve HTTP"):
        await server.start()


def _accepts(server: HttpServer) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.ports[0]), timeout=0.2):
        return True
    return False
