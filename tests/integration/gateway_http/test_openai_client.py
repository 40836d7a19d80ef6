"""OpenAI's own Python client against the real gateway and scheduler."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from http_stack import CHAT, MODEL, HttpStack, http_stack, saying, tiny_runner
from polling import until

TEXT = "Water flows: 水流不止, and 🌊 too."


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[HttpStack]:
    async with http_stack(tmp_path, saying(TEXT)) as running:
        yield running


@pytest.fixture
async def client(stack: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with stack.client() as connected:
        yield connected


async def test_chat_answers_whole(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.usage.completion_tokens == len(TEXT.encode()) + 1
    assert answer.id == f"chatcmpl-{answer._request_id}"


async def test_chat_streams_the_same_text_and_usage(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model=MODEL, messages=CHAT)
    stream = await client.chat.completions.create(
        model=MODEL, messages=CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    *pieces, last = chunks
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == TEXT
    assert pieces[0].choices[0].delta.role == "assistant"
    assert [piece.choices[0].finish_reason for piece in pieces][-1] == "stop"
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert len({chunk.id for chunk in chunks}) == 1


async def test_streaming_helper_of_the_client_works(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=CHAT) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.content == TEXT


async def test_completion_answers_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model=MODEL, prompt="Tell: ", max_tokens=200)
    assert whole.choices[0].text == TEXT
    stream = await client.completions.create(model=MODEL, prompt=[70, 71, 72], stream=True, max_tokens=200)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == TEXT


async def test_several_prompts_answer_in_order(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=["a", "bb", "ccc"], max_tokens=5)
    assert [(choice.index, choice.text, choice.finish_reason) for choice in answer.choices] == [
        (index, "Water", "length") for index in range(3)
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_ends_the_answer(client: openai.AsyncOpenAI, stream: bool) -> None:
    """STOP-6."""
    answer = await client.chat.completions.create(model=MODEL, messages=CHAT, stop=[" 水流"], stream=stream)
    if stream:
        chunks = [chunk async for chunk in answer]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, reason) == ("Water flows:", "stop")


async def test_repeated_prompt_counts_cached_tokens(client: openai.AsyncOpenAI) -> None:
    counts = []
    for _ in range(2):
        answer = await client.chat.completions.create(model=MODEL, messages=CHAT)
        counts.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert counts[0] == 0
    assert counts[1] > 0


async def test_models_are_listed_and_retrieved(client: openai.AsyncOpenAI) -> None:
    models = await client.models.list()
    assert [model.id for model in models.data] == [MODEL]
    assert (await client.models.retrieve(MODEL)).owned_by == "headrace"


async def test_request_id_in_use_is_a_conflict(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    stack.runner.is_open.clear()
    asked = {"model": MODEL, "messages": CHAT, "extra_body": {"request_id": "mine"}}
    first = asyncio.create_task(client.chat.completions.create(**asked))
    await until(lambda: bool(stack.runner.plans), 5)
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(**asked)
    stack.runner.is_open.set()
    assert (await first).choices[0].message.content == TEXT


async def test_time_limit_is_the_requests_own(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    stack.runner.is_open.clear()
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model=MODEL, messages=CHAT, extra_body={"timeout": 0.2})
    assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")


async def test_failure_within_a_stream_raises_and_gives_no_reason(stack: HttpStack, client: openai.AsyncOpenAI) -> None:
    """API-4 (b)."""

    def fail_at_five(request_id: str, position: int) -> None:
        if position == 5:
            stack.runner.engine.failing.add(request_id)

    stack.runner.engine.script = saying(TEXT, on_token=fail_at_five)
    stream = await client.chat.completions.create(model=MODEL, messages=CHAT, stream=True)
    chunks = []

    async def read_all() -> None:
        async for chunk in stream:
            chunks.append(chunk)

    with pytest.raises(openai.APIError) as caught:
        await read_all()
    assert {chunk.choices[0].finish_reason for chunk in chunks} == {None}
    assert TEXT.startswith("".join(chunk.choices[0].delta.content for chunk in chunks))
    assert caught.value.body["type"] == "server_error"


async def test_full_queue_is_a_rate_limit(tmp_path: Path) -> None:
    async with http_stack(tmp_path, saying(TEXT), queue_limit=1) as stack, stack.client() as client:
        stack.runner.is_open.clear()
        asked = {"model": MODEL, "messages": CHAT}
        waiting = [asyncio.create_task(client.chat.completions.create(**asked)) for _ in range(40)]
        done, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_EXCEPTION)
        error = next(task.exception() for task in done)
        assert isinstance(error, openai.RateLimitError)
        assert int(error.response.headers["retry-after"]) >= 1
        stack.runner.is_open.set()
        await asyncio.wait(waiting)


async def test_without_a_runner_requests_and_readiness_say_so(tmp_path: Path) -> None:
    """K8S-1, API-5."""
    async with http_stack(tmp_path, None) as stack, stack.client() as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model=MODEL, messages=CHAT)
        assert caught.value.status_code == 503
        assert caught.value.response.headers["retry-after"]
        ready = await client._client.get(f"{stack.url}/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "no runner is attached")
        assert (await client._client.get(f"{stack.url}/health")).status_code == 200


async def test_first_request_after_ready_is_answered(tmp_path: Path) -> None:
    """K8S-1."""
    async with (
        http_stack(tmp_path, None) as stack,
        stack.client() as client,
        tiny_runner(stack.scheduler.address, stack.model, saying(TEXT)),
    ):
        deadline = time.monotonic() + 5
        while (await client._client.get(f"{stack.url}/ready")).status_code != 200:
            assert time.monotonic() < deadline, "never became ready"
        answer = await client.chat.completions.create(model=MODEL, messages=CHAT)
    assert answer.choices[0].message.content == TEXT


async def test_wrong_key_is_an_authentication_error(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"acme:{hashlib.sha256(b'right').hexdigest()}\n")
    async with http_stack(tmp_path, saying(TEXT), api_keys_file=str(keys)) as stack:
        async with stack.client("wrong") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.chat.completions.create(model=MODEL, messages=CHAT)
            assert caught.value.code == "invalid_api_key"
        async with stack.client("right") as client:
            answer = await client.chat.completions.create(model=MODEL, messages=CHAT)
            assert json.loads(answer.to_json())["object"] == "chat.completion"
