"""Clients that vanish or send rubbish: their blocks come back, and everybody else goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from http_stack import CHAT, MODEL, HttpStack, http_stack, saying
from polling import until

PHRASE = "round and round "
LONG = {"model": MODEL, "messages": CHAT, "max_tokens": 200}


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[HttpStack]:
    async with http_stack(tmp_path, saying(PHRASE, repeats=True)) as running:
        yield running


def raw_request(body: bytes, path: str = "/v1/chat/completions", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


async def status_of(stack: HttpStack, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_are_free_within_a_second_of_a_disconnect_in_prefill(stack: HttpStack, stream: bool) -> None:
    """CAN-1: before any answer. The runner holds its step back until the client has gone."""
    stack.runner.is_open.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    writer.write(raw_request(json.dumps(LONG | {"stream": stream}).encode()))
    await until(lambda: stack.held_blocks() > 0, 5)
    writer.close()
    stack.runner.is_open.set()
    await until(lambda: stack.held_blocks() == 0, 1.0)


async def test_blocks_are_free_within_a_second_of_a_disconnect_in_a_stream(stack: HttpStack) -> None:
    """CAN-1: after three chunks, with most of the answer still to come."""

    def hold_at_fifty(_request_id: str, position: int) -> None:
        if position == 50:
            stack.runner.is_open.clear()

    stack.runner.engine.script = saying(PHRASE, repeats=True, on_token=hold_at_fifty)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    writer.write(raw_request(json.dumps(LONG | {"stream": True}).encode()))
    for _ in range(3):
        await asyncio.wait_for(reader.readuntil(b'"content":'), 5)
    await until(lambda: not stack.runner.is_open.is_set(), 5)
    writer.transport.abort()
    assert stack.held_blocks() > 0
    stack.runner.is_open.set()
    await until(lambda: stack.held_blocks() == 0, 1.0)


async def test_rubbish_disturbs_nobody(stack: HttpStack) -> None:
    """The bad inputs of the OpenAI routes, while another client's stream goes on."""
    prompt = json.dumps({"prompt": "x" * 5_000_000}).encode()
    rubbish = [
        (raw_request(b'{"messages": ['), 400),
        (raw_request(b'{"messages": "\xff"}'), 400),
        (raw_request(b'{"messages": [{"role": "user", "content": "\\ud800"}]}'), 400),
        (raw_request(b"[" * 50_000), 400),
        (raw_request(prompt, "/v1/completions"), 413),
        (raw_request(b"", "/v1/completions", length=5_000_000), 413),
        (raw_request(b'{"prompt": ""}', "/v1/completions", length=14), 200),
        (raw_request(b'{"prompt": [99999]}', "/v1/completions"), 400),
        (raw_request(json.dumps({"prompt": "x" * 100_000}).encode(), "/v1/completions"), 400),
        (b"nonsense\r\n\r\n", 400),
    ]
    async with stack.client() as client:
        stream = await client.chat.completions.create(**LONG, stream=True)
        text = ""
        statuses = []
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if len(statuses) < len(rubbish):
                statuses.append(await status_of(stack, rubbish[len(statuses)][0]))
    assert text == (PHRASE * 20)[:200]
    assert statuses == [expected for _, expected in rubbish]


async def test_slow_body_holds_nobody_up(stack: HttpStack) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    writer.write(raw_request(b'{"mess', length=1000))
    async with stack.client() as client:
        answer = await client.chat.completions.create(**LONG)
    assert answer.choices[0].finish_reason == "length"
    writer.close()
