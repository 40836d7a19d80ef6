"""Known parameters that this version does not act on: neutral values pass, others are refused by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.gateway.http.api_error import HttpFault, bad_param

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Neutral:
    """When a parameter changes nothing about the answer, in a check and in words."""

    accepts: Check
    words: str


def _one_of(*values: object) -> Neutral:
    # 0 and 1 are not False and True: a value counts only in its own type.
    known = [(type(value), value) for value in values]
    return Neutral(lambda given: (type(given), given) in known, " or ".join(_json(value) for value in values))


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"') if value != "" else '""'


def _is_labels(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


_ABSENT = Neutral(lambda _: False, "null")
_TEXT = Neutral(lambda value: isinstance(value, str), "a string")
_FLAG = Neutral(lambda value: isinstance(value, bool), "a boolean")

_COMMON: dict[str, Neutral] = {
    "user": _TEXT,
    "safety_identifier": _TEXT,
    "metadata": Neutral(_is_labels, "an object of strings"),
    "store": _one_of(False),
    "service_tier": _one_of("auto", "default"),
    "prompt_logprobs": _one_of(0, False),
    "guided_json": _ABSENT,
    "guided_regex": _ABSENT,
    "guided_choice": _ABSENT,
    "guided_grammar": _ABSENT,
    "structured_outputs": _ABSENT,
}
CHAT_NEUTRALS = _COMMON | {
    "logprobs": _one_of(False),
    "top_logprobs": _one_of(0),
    "tools": _one_of([]),
    "tool_choice": _one_of("none", "auto"),
    "parallel_tool_calls": _FLAG,
    "functions": _one_of([]),
    "function_call": _one_of("none", "auto"),
    "response_format": _one_of({"type": "text"}),
    "modalities": _one_of(["text"]),
    "audio": _ABSENT,
    "prediction": _ABSENT,
    "moderation": _ABSENT,
    "reasoning_effort": _one_of("none"),
    "verbosity": _one_of("medium"),
    "web_search_options": _ABSENT,
    # The prefix cache finds common prefixes by itself; the key is a routing hint.
    "prompt_cache_key": _TEXT,
    "prompt_cache_options": _ABSENT,
    "prompt_cache_retention": _one_of("in_memory", "in-memory"),
    "documents": _ABSENT,
    "chat_template": _ABSENT,
    "chat_template_kwargs": _one_of({}),
    "add_generation_prompt": _one_of(True),
    "continue_final_message": _one_of(False),
}
COMPLETION_NEUTRALS = _COMMON | {
    "logprobs": _one_of(False),
    "echo": _one_of(False),
    "best_of": _one_of(1),
    "suffix": _one_of(""),
}


def without_neutrals(body: dict[str, Any], neutrals: dict[str, Neutral]) -> dict[str, Any]:
    """Returns the body without its neutral parameters; raises HttpFault where one asks for something."""
    rest = {}
    for name, value in body.items():
        if name not in neutrals:
            rest[name] = value
        elif value is not None and not neutrals[name].accepts(value):
            raise _refusal(name, neutrals[name])
    return rest


def _refusal(name: str, neutral: Neutral) -> HttpFault:
    instead = "leave it out" if neutral is _ABSENT else f"leave it out, or send {neutral.words}"
    return bad_param(name, f"{name}: this value is not supported; {instead}", code="unsupported_value")
