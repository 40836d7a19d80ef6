"""Keeps big prompts off the event loop: tokenizing a megabyte takes a second, and streams must go on meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from services.common.errors import InvalidRequest
from services.gateway.limits import prompt_too_long
from services.gateway.request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from services.gateway.tokenizer import TextTokenizer

T = TypeVar("T")

# Up to here tokenizing is faster than changing threads is worth.
INLINE_CHARACTERS = 4096
INLINE_IDS = 1024
_THREADS = 2

# What a call that generates nothing may look up: enough for any prompt that a model's context can hold.
LOOK_UP_BYTES = 1024 * 1024
LOOK_UP_IDS = LOOK_UP_BYTES // 4


class Tokenizing:
    """Tokenizes small prompts at once and big ones in a few threads of its own."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenize")
        # Apart, so that looking up never holds up a prompt that is to be answered.
        self._look_up_threads = ThreadPoolExecutor(1, thread_name_prefix="look-up")

    async def encode(self, prompt: Prompt, limit: int | None = None) -> list[int]:
        """Returns a prompt's ids; raises InvalidRequest for an empty one and ContextLengthExceeded over the limit."""
        if isinstance(prompt, TokenPrompt):
            if limit is not None and len(prompt.token_ids) > limit:
                count = len(prompt.token_ids)
                raise prompt_too_long(str(count), limit, prompt_tokens=count)
            return list(prompt.token_ids)
        return await self._ids_of(prompt, limit, self._threads)

    async def look_up(self, prompt: Prompt) -> tuple[list[int], list[str]]:
        """Returns a prompt's ids and each id's own text; raises InvalidRequest for a prompt over LOOK_UP_BYTES."""
        _require_look_up_size(prompt)
        if isinstance(prompt, TokenPrompt):
            ids = list(prompt.token_ids)
        else:
            ids = await self._ids_of(prompt, None, self._look_up_threads)
        return ids, await self._token_texts(ids)

    async def decode(self, token_ids: Sequence[int], *, skips_special: bool) -> str:
        """Returns the text of ids."""
        is_small = len(token_ids) <= INLINE_IDS
        work = partial(self._tokenizer.decode, token_ids, skips_special=skips_special)
        return await self._run(is_small, work, self._look_up_threads)

    def close(self) -> None:
        """Ends the threads; what waits for one is dropped."""
        for threads in (self._threads, self._look_up_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _ids_of(self, prompt: TextPrompt | ChatPrompt, limit: int | None, threads: Executor) -> list[int]:
        ids = await self._run(_size(prompt) <= INLINE_CHARACTERS, partial(self._encode, prompt, limit), threads)
        if not ids:
            raise InvalidRequest("prompt.text", "has no tokens; send at least 1 character")
        return ids

    async def _token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """Goes in steps: one that nobody waits for any more is the last, and others come in between."""
        distinct = list(dict.fromkeys(token_ids))
        texts: dict[int, str] = {}
        for start in range(0, len(distinct), INLINE_IDS):
            ids = distinct[start : start + INLINE_IDS]
            work = partial(self._tokenizer.token_texts, ids)
            texts |= zip(ids, await self._run(len(distinct) <= INLINE_IDS, work, self._look_up_threads), strict=True)
        return [texts[token_id] for token_id in token_ids]

    def _encode(self, prompt: TextPrompt | ChatPrompt, limit: int | None) -> list[int]:
        if isinstance(prompt, TextPrompt):
            return self._tokenizer.encode_text(prompt.text, limit)
        return self._tokenizer.encode_chat(prompt, limit)

    async def _run(self, is_small: bool, work: Callable[[], T], threads: Executor) -> T:
        if is_small:
            return work()
        # A call that ends cancels its job; one that waits for a thread is dropped then.
        return await asyncio.get_running_loop().run_in_executor(threads, work)


def _size(prompt: TextPrompt | ChatPrompt) -> int:
    if isinstance(prompt, TextPrompt):
        return len(prompt.text)
    return sum(message.characters for message in prompt.messages)


def _require_look_up_size(prompt: Prompt) -> None:
    if isinstance(prompt, TokenPrompt):
        if len(prompt.token_ids) > LOOK_UP_IDS:
            raise InvalidRequest(
                "prompt.token_ids", f"{len(prompt.token_ids)} ids are too many; Tokenize takes at most {LOOK_UP_IDS}"
            )
        return
    if isinstance(prompt, TextPrompt):
        field, texts = "prompt.text", [prompt.text]
    else:
        field, texts = "prompt.messages", [text for message in prompt.messages for text in message.texts]
    if sum(len(text.encode()) for text in texts) > LOOK_UP_BYTES:
        raise InvalidRequest(
            field,
            f"is larger than {LOOK_UP_BYTES} bytes ({LOOK_UP_BYTES // 2**20} MiB), the most that Tokenize takes; "
            "send it in parts",
        )
