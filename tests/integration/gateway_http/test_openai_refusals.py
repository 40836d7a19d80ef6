"""What the OpenAI routes refuse, as OpenAI's own client reports it; one deployment serves all of these tests."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio
from http_stack import CHAT, CONTEXT, MODEL, VOCABULARY, http_stack, saying

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[openai.AsyncOpenAI]:
    async with http_stack(tmp_path_factory.mktemp("s"), saying("fine")) as stack, stack.client() as connected:
        yield connected
        answer = await connected.chat.completions.create(model=MODEL, messages=CHAT)
        assert answer.choices[0].message.content == "fine"
        assert stack.held_blocks() == 0


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"temperature": 1e300}, "temperature", "invalid_value"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"extra_body": {"top_k": -2}}, "top_k", "invalid_value"),
        ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty", "invalid_value"),
        ({"frequency_penalty": 1}, "frequency_penalty", "invalid_value"),
        ({"logit_bias": {str(VOCABULARY): 5}}, "logit_bias", "invalid_value"),
        ({"n": 2}, "n", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"max_tokens": CONTEXT}, "max_tokens", "context_length_exceeded"),
        ({"max_completion_tokens": CONTEXT}, "max_completion_tokens", "context_length_exceeded"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "user", "content": "x" * CONTEXT}]}, "messages", "context_length_exceeded"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "invalid_value"),
        ({"stop": [""]}, "stop", "invalid_value"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"extra_body": {"priority": 10}}, "priority", "invalid_value"),
        ({"extra_body": {"stop_token_ids": [VOCABULARY]}}, "stop_token_ids", "invalid_value"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_request_names_the_parameter(
    client: openai.AsyncOpenAI, asked: dict, param: str, code: str, stream: bool
) -> None:
    """API-4, API-5, VAL-4, VAL-6: a BadRequestError also where a stream was asked for."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**({"model": MODEL, "messages": CHAT, "stream": stream} | asked))
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


@pytest.mark.parametrize("prompt", [[], [[]], [VOCABULARY], [1, 2, 10**6]])
async def test_bad_token_prompt_is_refused(client: openai.AsyncOpenAI, prompt: list) -> None:
    """VAL-2."""
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=MODEL, prompt=prompt)
    assert caught.value.param == "prompt"


async def test_unknown_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="nope", messages=CHAT)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")
