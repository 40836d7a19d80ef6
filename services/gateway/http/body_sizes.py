"""How much a body may hold, checked on the parsed JSON: what is far too much never reaches validation."""

from collections.abc import Sized
from typing import Any

from services.gateway.http.api_error import ApiError, HttpFault, bad_param
from services.gateway.http.brief import brief
from services.gateway.http.settings import HttpSettings
from services.gateway.validation import MESSAGES, STOP_STRINGS, STOP_TOKEN_IDS

KEYS = 512
KEY_CHARACTERS = 256
PARTS = 8192
"""Content parts and tool calls of a whole conversation."""

_LISTS = {"messages": MESSAGES, "stop": STOP_STRINGS, "stop_token_ids": STOP_TOKEN_IDS}
_SHOWN_KEY = 40


def check_sizes(body: dict[str, Any]) -> None:
    """Raises HttpFault for an object or a list of a body that is larger than any request needs."""
    _check_object(None, body)
    for name, value in body.items():
        if isinstance(value, dict):
            _check_object(name, value)
    for name, limit in _LISTS.items():
        value = body.get(name)
        if isinstance(value, list) and len(value) > limit:
            raise _too_many(name, value, limit)
    messages = body.get("messages")
    if isinstance(messages, list):
        _check_messages(messages)


def check_prompt_size(prompt: Any, settings: HttpSettings) -> None:
    """Raises HttpFault for too many prompts in one call, or for more token ids than any context holds."""
    if not isinstance(prompt, list) or not prompt:
        return
    if type(prompt[0]) is int:
        token_ids = len(prompt)
    elif len(prompt) > settings.prompts:
        message = f"prompt: {len(prompt)} prompts, one call takes at most {settings.prompts}; send several calls"
        raise bad_param("prompt", message)
    else:
        token_ids = sum(len(one) for one in prompt if isinstance(one, list))
    if token_ids > settings.prompt_token_ids:
        limit = settings.prompt_token_ids
        message = f"prompt: {token_ids} token ids, one call takes at most {limit}; shorten it, or send several calls"
        raise HttpFault(ApiError(400, message, param="prompt", code="context_length_exceeded"))


def _check_messages(messages: list[Any]) -> None:
    parts = 0
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        param = f"messages[{index}]"
        _check_object(param, message)
        for name in ("content", "tool_calls"):
            items = message.get(name)
            if isinstance(items, list):
                parts += len(items)
        if parts > PARTS:
            text = f"messages: more than {PARTS} content parts and tool calls together; join or leave out some"
            raise bad_param("messages", text)
        _check_tool_calls(f"{param}.tool_calls", message.get("tool_calls"))


def _check_tool_calls(param: str, calls: Any) -> None:
    if not isinstance(calls, list):
        return
    for index, call in enumerate(calls):
        if isinstance(call, dict):
            _check_object(f"{param}[{index}]", call)
            if isinstance(call.get("function"), dict):
                _check_object(f"{param}[{index}].function", call["function"])


def _check_object(param: str | None, value: dict[str, Any]) -> None:
    where = param or "the body"
    if len(value) > KEYS:
        text = f"{where}: {len(value)} keys are too many; send at most {KEYS}"
        raise HttpFault(ApiError(400, text, param=param, code="invalid_value"))
    for key in value:
        if len(key) > KEY_CHARACTERS:
            text = (
                f"{where}: the key {brief(key, _SHOWN_KEY)!r} has {len(key)} characters; use at most {KEY_CHARACTERS}"
            )
            raise HttpFault(ApiError(400, text, param=param, code="invalid_value"))


def _too_many(param: str, items: Sized, limit: int) -> HttpFault:
    return bad_param(param, f"{param}: {len(items)} items are too many; send at most {limit}")
