"""Several prompts of one request: a generation each, their answers as one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from headrace.v1.inference_pb2 import Chunk, GenerateRequest, GenerateResponse
from services.gateway.http.answers import PromptChunk

Start = Callable[[GenerateRequest], AsyncGenerator[Chunk, None]]
Ask = Callable[[GenerateRequest], Coroutine[Any, Any, GenerateResponse]]

# A reader that is slower than all its generations together stops them here.
_CHUNKS_AHEAD = 256


async def all_responses(requests: Sequence[GenerateRequest], ask: Ask) -> list[GenerateResponse]:
    """Returns the answer to every prompt; one that fails ends all."""
    tasks = [asyncio.create_task(ask(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_chunks(requests: Sequence[GenerateRequest], start: Start) -> AsyncGenerator[PromptChunk, None]:
    """Yields the chunks of every prompt's generation as they come; one that fails ends all."""
    if len(requests) == 1:
        async with aclosing(start(requests[0])) as chunks:
            async for chunk in chunks:
                yield PromptChunk(0, chunk)
        return
    queue: asyncio.Queue[PromptChunk | BaseException | None] = asyncio.Queue(_CHUNKS_AHEAD)
    tasks = [asyncio.create_task(_pump(index, start(request), queue)) for index, request in enumerate(requests)]
    try:
        async for item in _started_together(queue, len(tasks)):
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int, chunks: AsyncGenerator[Chunk, None], queue: "asyncio.Queue[PromptChunk | BaseException | None]"
) -> None:
    try:
        async with aclosing(chunks) as source:
            async for chunk in source:
                await queue.put(PromptChunk(index, chunk))
    except Exception as error:  # noqa: BLE001 - raised again by the reader
        await queue.put(error)
    else:
        await queue.put(None)


async def _started_together(
    queue: "asyncio.Queue[PromptChunk | BaseException | None]", count: int
) -> AsyncGenerator[PromptChunk, None]:
    """Holds chunks back until every generation has given one, so that a refused prompt is known before any text."""
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
        if len(seen) == count:
            yield item
            continue
        held.append(item)
        seen.add(item.prompt)
        if len(seen) == count:
            for chunk in held:
                yield chunk
            held.clear()
    for chunk in held:
        yield chunk
