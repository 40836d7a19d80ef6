"""Keeps big prompts off the event loop: tokenizing a megabyte takes a second, and streams must go on meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class Tokenizing:
    """Tokenizes small prompts at once and big ones in a few threads of its own."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenize")

    async def encode(self, prompt: Prompt, limit: int | None = None) -> list[int]:
        """Returns a prompt's ids; raises InvalidRequest for an empty one and ContextLengthExceeded over the limit."""
        if isinstance(prompt, TokenPrompt):
            if limit is not None and len(prompt.token_ids) > limit:
                count = len(prompt.token_ids)
                raise prompt_too_long(str(count), limit, prompt_tokens=count)
            return list(prompt.token_ids)
        ids = await self._run(_size(prompt) <= INLINE_CHARACTERS, lambda: self._encode(prompt, limit))
        if not ids:
            raise InvalidRequest("prompt.text", "has no tokens; send at least 1 character")
        return ids

    async def decode(self, token_ids: Sequence[int], *, skips_special: bool) -> str:
        """Returns the text of ids."""
        is_small = len(token_ids) <= INLINE_IDS
        return await self._run(is_small, lambda: self._tokenizer.decode(token_ids, skips_special=skips_special))

    async def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """Returns each id's own text."""
        return await self._run(len(token_ids) <= INLINE_IDS, lambda: self._tokenizer.token_texts(token_ids))

    def close(self) -> None:
        """Ends the threads; what waits for one is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _encode(self, prompt: TextPrompt | ChatPrompt, limit: int | None) -> list[int]:
        if isinstance(prompt, TextPrompt):
            return self._tokenizer.encode_text(prompt.text, limit)
        return self._tokenizer.encode_chat(prompt, limit)

    async def _run(self, is_small: bool, work: Callable[[], T]) -> T:
        if is_small:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _size(prompt: TextPrompt | ChatPrompt) -> int:
    if isinstance(prompt, TextPrompt):
        return len(prompt.text)
    return sum(len(message.text) for message in prompt.messages)
