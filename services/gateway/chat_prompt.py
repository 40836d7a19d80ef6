"""Turns a conversation into what chat templates expect."""

from collections.abc import Collection
from typing import Any

from services.common.errors import InvalidRequest
from services.gateway.request import ChatPrompt, Message


def template_messages(prompt: ChatPrompt, *, knows_developer: bool) -> list[dict[str, Any]]:
    """Returns the messages as dictionaries; a template that knows no developer gets it as system."""
    return [_template_message(message, knows_developer) for message in prompt.messages]


def require_free_variables(prompt: ChatPrompt, reserved: Collection[str]) -> None:
    """Raises InvalidRequest where a template variable would replace one of ours."""
    taken = next((name for name in prompt.template_variables if name in reserved or name.startswith("_")), None)
    if taken is not None:
        raise InvalidRequest("prompt.messages.template_kwargs", f"{taken!r} is reserved; use another name")


def with_one_bos(token_ids: list[int], bos_id: int | None, *, adds_bos: bool) -> list[int]:
    """Makes sure that a prompt begins with one BOS: templates write it, tokenizers add it, and text may hold it."""
    if bos_id is None:
        return token_ids
    extra = 0
    while token_ids[extra : extra + 2] == [bos_id, bos_id]:
        extra += 1
    if adds_bos and token_ids[:1] != [bos_id]:
        return [bos_id, *token_ids]
    return token_ids[extra:] if extra else token_ids


def _template_message(message: Message, knows_developer: bool) -> dict[str, Any]:
    role = "system" if message.role == "developer" and not knows_developer else message.role
    entry: dict[str, Any] = {"role": role, "content": message.text}
    if message.name:
        entry["name"] = message.name
    if message.tool_call_id:
        entry["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        entry["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return entry
