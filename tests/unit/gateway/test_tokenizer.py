"""Text, conversations and ids become prompts: exactly one BOS, nothing cut, long ones refused cheaply."""

import time
from pathlib import Path
from typing import Any

import pytest
from tokenizer_folder import byte_fallback, byte_level, write_folder

from services.common.errors import ContextLengthExceeded, InvalidRequest
from services.common.model_folder import ModelFolderError
from services.gateway.request import ChatPrompt, Message, TextPrompt, TokenPrompt
from services.gateway.tokenizer import TextTokenizer, load_tokenizer
from services.gateway.tokenizing import Tokenizing

BOS_ID = 0


def conversation(*texts: str, role: str = "user", **variables: Any) -> ChatPrompt:
    return ChatPrompt(tuple(Message(role, (text,)) for text in texts), template_variables=variables)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(byte_level())


def test_text_gets_what_the_tokenizer_adds(tokenizer: TextTokenizer) -> None:
    """TOK-1."""
    assert tokenizer.encode_text("A") == [BOS_ID, 4 + 65]


def test_text_that_begins_with_bos_has_it_once(tokenizer: TextTokenizer) -> None:
    """TOK-1: completions with already templated text."""
    assert tokenizer.encode_text("<s>A") == [BOS_ID, 4 + 65]


def test_a_conversation_has_one_bos_and_equals_the_template_of_transformers() -> None:
    """TOK-1."""
    real = byte_level()
    messages = [{"role": "user", "content": "hi"}]
    expected = real.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    ids = TextTokenizer(real).encode_chat(conversation("hi"))
    assert ids == expected
    assert ids[0] == BOS_ID
    assert ids[1] != BOS_ID


def test_a_template_without_bos_gets_the_one_that_the_tokenizer_adds() -> None:
    """TOK-1: lost."""
    real = byte_level()
    real.chat_template = real.chat_template.replace("{{ bos_token }}", "")
    ids = TextTokenizer(real).encode_chat(conversation("hi"))
    assert ids[0] == BOS_ID
    assert ids[1] != BOS_ID


def test_a_model_that_adds_no_bos_gets_none() -> None:
    real = byte_level(adds_bos=False)
    real.chat_template = real.chat_template.replace("{{ bos_token }}", "")
    tokenizer = TextTokenizer(real)
    assert BOS_ID not in tokenizer.encode_chat(conversation("hi"))
    assert tokenizer.encode_text("A") == [4 + 65]


async def test_token_ids_are_used_as_they_are(tokenizer: TextTokenizer) -> None:
    """TOK-1."""
    assert await Tokenizing(tokenizer).encode(TokenPrompt((0, 0, 5))) == [0, 0, 5]


async def test_an_empty_text_is_a_prompt_only_where_the_tokenizer_adds_something(tokenizer: TextTokenizer) -> None:
    """VAL-2."""
    assert await Tokenizing(tokenizer).encode(TextPrompt("")) == [BOS_ID]
    with pytest.raises(InvalidRequest, match="no tokens"):
        await Tokenizing(TextTokenizer(byte_level(adds_bos=False))).encode(TextPrompt(""))


def test_a_role_that_the_template_refuses_is_the_callers_error(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidRequest, match="unknown role tool"):
        tokenizer.encode_chat(conversation("hi", role="tool"))


def test_a_developer_speaks_as_system_where_the_template_knows_no_developer(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode_chat(conversation("hi", role="developer"))
    assert "system: hi" in tokenizer.decode(ids, skips_special=True)


def test_a_model_without_a_template_says_so() -> None:
    real = byte_level()
    real.chat_template = None
    with pytest.raises(InvalidRequest, match="no chat template"):
        TextTokenizer(real).encode_chat(conversation("hi"))


@pytest.mark.parametrize("name", ["tokenize", "chat_template", "bos_token", "add_generation_prompt", "_x"])
def test_template_variables_cannot_replace_ours(tokenizer: TextTokenizer, name: str) -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        tokenizer.encode_chat(conversation("hi", **{name: False}))


def test_a_saved_truncation_does_not_cut_prompts() -> None:
    real = byte_level()
    real.backend_tokenizer.enable_truncation(4)
    assert len(TextTokenizer(real).encode_text("A" * 50)) == 51


def test_a_prompt_over_the_limit_is_refused_with_its_length(tokenizer: TextTokenizer) -> None:
    assert len(tokenizer.encode_text("A" * 9, limit=10)) == 10
    with pytest.raises(ContextLengthExceeded, match="11"):
        tokenizer.encode_text("A" * 10, limit=10)


@pytest.mark.parametrize("real", [byte_level(), byte_fallback()])
def test_a_hopeless_prompt_is_refused_without_tokenizing(real: Any) -> None:
    """K8S-6."""
    tokenizer = TextTokenizer(real)
    began = time.perf_counter()
    with pytest.raises(ContextLengthExceeded, match="at least"):
        tokenizer.encode_text("hello " * 600_000, limit=2048)
    assert time.perf_counter() - began < 0.5


def test_the_text_of_each_token_is_told(tokenizer: TextTokenizer) -> None:
    assert tokenizer.token_texts([0, 4 + 65, 4 + 0xC4]) == ["<s>", "A", "�"]


def test_a_folder_is_loaded_and_a_broken_one_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", byte_level())
    assert load_tokenizer(folder).encode_text("A") == [BOS_ID, 4 + 65]
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelFolderError, match="cannot be loaded"):
        load_tokenizer(folder)
