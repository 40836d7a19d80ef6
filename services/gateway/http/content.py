"""Prompts and message contents as the JSON body has them: one of several shapes each."""

from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from services.gateway.http.brief import brief

TOKEN_ID_LIMIT = 2**32 - 1
_ID_DIGITS = len(str(TOKEN_ID_LIMIT))
_SHOWN_CHARACTERS = 40

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
    if not value:
        raise PydanticCustomError("prompt_value", "is empty; give a string, or at least 1 token id")
    outside = next((item for item in value if not 0 <= item <= TOKEN_ID_LIMIT), None)
    if outside is not None:
        raise PydanticCustomError("prompt_value", "{id} is not a token id", {"id": _shown(str(outside))})
    return tuple(value)


def _prompts(value: Any) -> tuple[OnePrompt, ...]:
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
        shown = repr(_shown(kind)) if isinstance(kind, str) else "other than a string"
        message = "part {index}: parts of type {kind} are not supported; send text parts"
        raise PydanticCustomError("content_value", message, {"index": index, "kind": shown})
    if part.keys() != {"type", "text"} or not isinstance(part["text"], str):
        message = "part {index}: expected an object of type and text, a string, and nothing else"
        raise PydanticCustomError("content_type", message, {"index": index})
    return part["text"]


def _stop(value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise PydanticCustomError("stop_type", "expected a string or a list of strings")
    return tuple(strings)


def _logit_bias(value: Any) -> dict[int, float]:
    """JSON has no integer keys, so the ids come as text."""
    if not isinstance(value, dict):
        raise PydanticCustomError("bias_type", "expected an object")
    for text, bias in value.items():
        if not (text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS and int(text) <= TOKEN_ID_LIMIT):
            raise PydanticCustomError("bias_value", "{key} is not a token id", {"key": repr(_shown(text))})
        if type(bias) not in (int, float):
            raise PydanticCustomError("bias_value", "the bias of {key} is not a number", {"key": _shown(text)})
    return {int(text): _float(bias) for text, bias in value.items()}


def _shown(text: str) -> str:
    return brief(text, _SHOWN_CHARACTERS)


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        raise PydanticCustomError("bias_value", "a bias is out of range; use a number from -100 to 100") from None


Prompts = Annotated[tuple[OnePrompt, ...], PlainValidator(_prompts)]
Content = Annotated[tuple[str, ...] | None, PlainValidator(_content)]
LogitBias = Annotated[dict[int, float], PlainValidator(_logit_bias)]
Stop = Annotated[tuple[str, ...], PlainValidator(_stop)]
