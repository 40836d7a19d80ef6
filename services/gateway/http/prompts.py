"""Several prompts of one request: a generation each, their answers as one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from headrace.v1.inference_pb2 import Chunk, GenerateRequest, GenerateResponse
from services.gateway.http.answers import PromptChunk

Start = Callable[[GenerateRequest], AsyncGenerator[Chunk, None]]
Ask = Callable[[GenerateRequest], Coroutine[Any, Any, GenerateResponse]]
Items = asyncio.Queue[PromptChunk | BaseException | None]

# A reader that is slower than all its generations together stops them here.
_CHUNKS_AHEAD = 256


async def all_responses(requests: Sequence[GenerateRequest], ask: Ask, at_once: int) -> list[GenerateResponse]:
    """Returns the answer to every prompt, so many at a time; one that fails ends all."""
    turns = asyncio.Semaphore(at_once)

    async def ask_in_turn(request: GenerateRequest) -> GenerateResponse:
        async with turns:
            return await ask(request)

    tasks = [asyncio.create_task(ask_in_turn(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_chunks(
    requests: Sequence[GenerateRequest], start: Start, at_once: int
) -> AsyncGenerator[PromptChunk, None]:
    """Yields the chunks of every prompt's generation as they come, so many at a time; one that fails ends all."""
    if len(requests) == 1:
        async with aclosing(start(requests[0])) as chunks:
            async for chunk in chunks:
                yield PromptChunk(0, chunk)
        return
    queue: Items = asyncio.Queue(_CHUNKS_AHEAD)
    turns = asyncio.Semaphore(at_once)

    async def run_in_turn(index: int, request: GenerateRequest) -> None:
        async with turns:
            await _pump(index, start(request), queue)

    tasks = [asyncio.create_task(run_in_turn(index, request)) for index, request in enumerate(requests)]
    try:
        async for item in _started_together(queue, len(tasks), at_once):
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(index: int, chunks: AsyncGenerator[Chunk, None], queue: Items) -> None:
    try:
        async with aclosing(chunks) as source:
            async for chunk in source:
                await queue.put(PromptChunk(index, chunk))
    except Exception as error:  # noqa: BLE001 - raised again by the reader
        await queue.put(error)
    else:
        await queue.put(None)


async def _started_together(queue: Items, count: int, at_once: int) -> AsyncGenerator[PromptChunk, None]:
    """Holds chunks back until every generation of the first turn has given one.

    So a prompt that is refused is known before any text, unless it has to wait for a turn.
    """
    first = min(count, at_once)
    held: list[PromptChunk] = []
    seen: set[int] = set()
    running = count
    while running:
        item = await queue.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            running -= 1
            continue
        if len(seen) == first:
            yield item
            continue
        held.append(item)
        if item.prompt < first:
            seen.add(item.prompt)
        if len(seen) == first:
            for chunk in held:
                yield chunk
            held.clear()
    for chunk in held:
        yield chunk
