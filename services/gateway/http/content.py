"""Prompts and message contents as the JSON body has them: one of several shapes each."""

from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

TOKEN_ID_LIMIT = 2**32 - 1

TextPrompt = str
TokenPrompt = tuple[int, ...]
OnePrompt = TextPrompt | TokenPrompt


def _is_token_ids(value: list[Any]) -> bool:
    # bool is an int to Python, not to JSON.
    return all(type(item) is int for item in value)


def _one_prompt(value: Any) -> OnePrompt:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not _is_token_ids(value):
        raise PydanticCustomError("prompt_type", "expected a string, a list of token ids, or a list of these")
    outside = next((item for item in value if not 0 <= item <= TOKEN_ID_LIMIT), None)
    if outside is not None:
        raise PydanticCustomError("prompt_value", "{id} is not a token id", {"id": outside})
    return tuple(value)


def _prompts(value: Any) -> tuple[OnePrompt, ...]:
    """An empty list is one prompt without tokens, which generation refuses with its own words."""
    if isinstance(value, list) and value and not _is_token_ids(value):
        return tuple(_one_prompt(item) for item in value)
    return (_one_prompt(value),)


def _content(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise PydanticCustomError("content_type", "expected a string or a list of text parts")
    return tuple(_text_of_part(index, part) for index, part in enumerate(value))


def _text_of_part(index: int, part: Any) -> str:
    if not isinstance(part, dict):
        raise PydanticCustomError("content_type", "part {index}: expected an object", {"index": index})
    kind = part.get("type")
    if kind != "text":
        message = "part {index}: parts of type {kind} are not supported; send text parts"
        raise PydanticCustomError("content_value", message, {"index": index, "kind": repr(kind)})
    if part.keys() != {"type", "text"} or not isinstance(part["text"], str):
        message = "part {index}: expected an object of type and text, a string, and nothing else"
        raise PydanticCustomError("content_type", message, {"index": index})
    return part["text"]


def _stop(value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise PydanticCustomError("stop_type", "expected a string or a list of strings")
    return tuple(strings)


Prompts = Annotated[tuple[OnePrompt, ...], PlainValidator(_prompts)]
Content = Annotated[tuple[str, ...] | None, PlainValidator(_content)]
Stop = Annotated[tuple[str, ...], PlainValidator(_stop)]
