"""What is looked up is bounded, ends with its call, and never holds up a prompt that is to be answered."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tokenizer_folder import byte_level

from services.common.errors import InvalidRequest
from services.gateway.request import ChatPrompt, Message, Prompt, TextPrompt, TokenPrompt
from services.gateway.tokenizer import TextTokenizer
from services.gateway.tokenizing import INLINE_CHARACTERS, INLINE_IDS, LOOK_UP_BYTES, LOOK_UP_IDS, Tokenizing

LONG = TextPrompt("A" * (INLINE_CHARACTERS + 1))
# The vocabulary is smaller than a step of token texts, ids beyond it have no text.
MANY_IDS = TokenPrompt(tuple(range(3 * INLINE_IDS)))


class HeldTokenizer(TextTokenizer):
    """A tokenizer whose token texts wait for a word."""

    def __init__(self) -> None:
        super().__init__(byte_level())
        self.is_held, self.may_go_on = threading.Event(), threading.Event()
        self.steps = 0

    def token_texts(self, token_ids: object) -> list[str]:
        self.steps += 1
        self.is_held.set()
        assert self.may_go_on.wait(5)
        return super().token_texts(token_ids)  # type: ignore[arg-type]


@contextmanager
def tokenizing_of(tokenizer: TextTokenizer) -> Iterator[Tokenizing]:
    tokenizing = Tokenizing(tokenizer)
    try:
        yield tokenizing
    finally:
        tokenizing.close()


async def held(tokenizer: HeldTokenizer) -> None:
    assert await asyncio.to_thread(tokenizer.is_held.wait, 5)


@pytest.mark.parametrize(
    ("prompt", "field", "limit"),
    [
        (TextPrompt("x" * (LOOK_UP_BYTES + 1)), "prompt.text", "1 MiB"),
        (TextPrompt("é" * (LOOK_UP_BYTES // 2 + 1)), "prompt.text", "1 MiB"),
        (ChatPrompt((Message("user", ("x" * LOOK_UP_BYTES,), name="x"),)), "prompt.messages", "1 MiB"),
        (TokenPrompt((4,) * (LOOK_UP_IDS + 1)), "prompt.token_ids", str(LOOK_UP_IDS)),
    ],
)
async def test_what_is_too_much_to_look_up_is_refused_with_the_limit(prompt: Prompt, field: str, limit: str) -> None:
    with (
        tokenizing_of(TextTokenizer(byte_level())) as tokenizing,
        pytest.raises(InvalidRequest, match=limit) as refusal,
    ):
        await tokenizing.look_up(prompt)
    assert refusal.value.violations[0].field == field


async def test_ids_come_with_the_text_of_each_in_order() -> None:
    with tokenizing_of(TextTokenizer(byte_level())) as tokenizing:
        assert await tokenizing.look_up(TextPrompt("AAB")) == ([0, 69, 69, 70], ["<s>", "A", "A", "B"])
        ids, texts = await tokenizing.look_up(MANY_IDS)
        assert (len(texts), texts[69], ids) == (len(ids), "A", list(MANY_IDS.token_ids))


async def test_a_prompt_that_is_to_be_answered_overtakes_what_is_looked_up() -> None:
    tokenizer = HeldTokenizer()
    with tokenizing_of(tokenizer) as tokenizing:
        looking_up = [asyncio.create_task(tokenizing.look_up(MANY_IDS)) for _ in range(4)]
        await held(tokenizer)
        assert len(await asyncio.wait_for(tokenizing.encode(LONG), 5)) == INLINE_CHARACTERS + 2
        tokenizer.may_go_on.set()
        await asyncio.gather(*looking_up)


async def test_looking_up_ends_with_its_call() -> None:
    """Neither the rest of the one at work nor those that wait are done for nobody."""
    tokenizer = HeldTokenizer()
    with tokenizing_of(tokenizer) as tokenizing:
        calls = [asyncio.create_task(tokenizing.look_up(MANY_IDS)) for _ in range(4)]
        await held(tokenizer)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        tokenizer.may_go_on.set()
        await tokenizing.look_up(LONG)
        assert tokenizer.steps == 2
