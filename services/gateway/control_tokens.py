"""Keeps what callers write apart from the control tokens that chat templates write: both are the same characters."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from services.common.errors import InvalidRequest
from services.gateway.request import ChatPrompt, Message, ToolCall

# Private use: no script and hardly a template means anything by them, and no template can take one character apart.
_PRIVATE_USE = range(0xE000, 0xF900)

Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class HiddenTokens:
    """A conversation in which one character stands for each control token that its caller has written."""

    prompt: ChatPrompt
    tokens: dict[int, str]
    """The tokens' own text, by the code point that stands for it."""

    def shown(self, text: str) -> str:
        """Puts the text of the tokens back."""
        return text.translate(self.tokens)


class ControlTokens:
    """Encodes a rendered conversation so that only the template's own control tokens become their ids."""

    def __init__(self, backend: Any, unknown_id: int | None) -> None:
        added: dict[int, Any] = backend.get_added_tokens_decoder()
        special = {token_id: token for token_id, token in added.items() if token.special}
        self._unknown_id = unknown_id
        self._texts = {token_id: str(token.content) for token_id, token in special.items()}
        longest_first = sorted(self._texts.values(), key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # This copy reads control tokens as plain text, and aliases that no caller can guess as control tokens.
        self._backend = type(backend).from_str(backend.to_str())
        self._backend.encode_special_tokens = True
        secret = secrets.token_hex(16)
        aliases = {token_id: f"<{secret}-{token_id}>" for token_id in special}
        self._backend.add_tokens([_alias(token, aliases[token_id]) for token_id, token in special.items()])
        self._aliases = {self._texts[token_id]: alias for token_id, alias in aliases.items()}
        self._ids = {self._backend.token_to_id(alias): token_id for token_id, alias in aliases.items()}

    def hide(self, prompt: ChatPrompt, template: str) -> HiddenTokens | None:
        """Takes the control tokens out of everything that the caller wrote; None where there are none."""
        written = [text for message in prompt.messages for text in message.texts]
        written += _strings_in(dict(prompt.template_variables))
        tokens = dict.fromkeys(token for text in written for token in self._any.findall(text))
        if not tokens:
            return None
        taken = set(template).union(*written)
        free = [chr(code) for code in _PRIVATE_USE if chr(code) not in taken]
        if len(free) < len(tokens):
            raise _refusal(prompt, next(iter(tokens)), str)
        stand_ins = dict(zip(tokens, free, strict=False))
        hidden = _changed(prompt, lambda text: self._any.sub(lambda found: stand_ins[found.group()], text))
        return HiddenTokens(hidden, {ord(stand_in): token for token, stand_in in stand_ins.items()})

    def encode(self, rendered: str, hidden: HiddenTokens) -> list[int]:
        """Returns the ids of a conversation that was rendered with its caller's control tokens hidden."""
        text = hidden.shown(self._any.sub(lambda found: self._aliases[found.group()], rendered))
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        for token_id in ids:
            # Some vocabularies hold a control token as a word too: there its text can be nothing else.
            if token_id in self._texts and token_id != self._unknown_id:
                raise _refusal(hidden.prompt, self._texts[token_id], hidden.shown)
        return [self._ids.get(token_id, token_id) for token_id in ids]


def _refusal(prompt: ChatPrompt, token: str, shown: Change) -> InvalidRequest:
    holds = [token in shown("\0".join(message.texts)) for message in prompt.messages]
    field = f"prompt.messages[{holds.index(True)}]" if True in holds else "prompt.messages"
    return InvalidRequest(field, f"holds {token!r}, which this model cannot read as plain text; leave it out")


def _alias(token: Any, alias: str) -> Any:
    from tokenizers import AddedToken

    return AddedToken(alias, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False, special=False)


def _strings_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in _strings_in(item))]
    return [text for item in value for text in _strings_in(item)] if isinstance(value, list) else []


def _changed(prompt: ChatPrompt, change: Change) -> ChatPrompt:
    return replace(
        prompt,
        messages=tuple(_changed_message(message, change) for message in prompt.messages),
        template_variables=_changed_value(dict(prompt.template_variables), change),
    )


def _changed_message(message: Message, change: Change) -> Message:
    calls = (ToolCall(change(call.id), change(call.name), change(call.arguments)) for call in message.tool_calls)
    return replace(
        message,
        # Joined, for a token may begin in one part and end in the next.
        parts=(change(message.text),),
        tool_calls=tuple(calls),
        tool_call_id=change(message.tool_call_id),
        name=change(message.name),
    )


def _changed_value(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed_value(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed_value(item, change) for item in value]
    return value
