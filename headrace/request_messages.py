"""Turns what a caller gives into messages; what no message can hold is an InvalidRequest that names the field."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.errors import invalid_request
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_pb2 as inf

# Deadlines that lie beyond what 64 bits of nanoseconds hold have passed at once; nobody waits for a year.
LONGEST_TIMEOUT_SECONDS = 365 * 86400.0

_ROLES = {
    "system": inf.ROLE_SYSTEM,
    "developer": inf.ROLE_DEVELOPER,
    "user": inf.ROLE_USER,
    "assistant": inf.ROLE_ASSISTANT,
    "tool": inf.ROLE_TOOL,
}

_SAMPLING = ("temperature", "top_p", "top_k", "seed")
_STOP = ("max_tokens", "min_tokens", "stop")
_OPTIONS = ("model", "priority", "request_id")


class Turn(TypedDict):
    """One message of a conversation, as the OpenAI API writes it."""

    role: str
    content: str


class GenerationOptions(TypedDict, total=False):
    """How to generate; what is left out is the model's or the server's default."""

    model: str
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: str | Sequence[str]
    priority: int
    request_id: str
    timeout_seconds: float


_WANTED = {
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_INT32: f"a whole number from {-(2**31)} to {2**31 - 1}",
    FieldDescriptor.TYPE_UINT32: f"a whole number from 0 to {2**32 - 1}",
    FieldDescriptor.TYPE_UINT64: f"a whole number from 0 to {2**64 - 1}",
}

MessageT = TypeVar("MessageT", bound=Message)


def conversation_message(conversation: str | Sequence[Turn]) -> inf.Conversation:
    """Returns the message of a question or of a conversation."""
    turns = [Turn(role="user", content=conversation)] if isinstance(conversation, str) else conversation
    if isinstance(turns, Mapping | bytes) or not isinstance(turns, Sequence):
        raise invalid_request(
            "prompt.messages", f"is of type {type(turns).__name__}; give a string, or a list of role and content"
        )
    return inf.Conversation(messages=[_turn_message(turn, index) for index, turn in enumerate(turns)])


def _turn_message(turn: Turn, index: int) -> inf.Message:
    field = f"prompt.messages[{index}]"
    if not isinstance(turn, Mapping):
        raise invalid_request(field, f"is of type {type(turn).__name__}; give a mapping with role and content")
    for key in ("role", "content"):
        if not isinstance(turn.get(key), str):
            found = f"is of type {type(turn[key]).__name__}" if key in turn else "is missing"  # type: ignore[literal-required]
            raise invalid_request(f"{field}.{key}", f"{found}; give a string")
    if turn["role"] not in _ROLES:
        raise invalid_request(f"{field}.role", f"{turn['role']!a} is unknown; use one of {', '.join(_ROLES)}")
    part = _built(inf.Part, f"{field}.content", text=turn["content"])
    return inf.Message(role=_ROLES[turn["role"]], parts=[part])


def prompt_message(prompt: str | Sequence[int]) -> inf.Prompt:
    """Returns the message of a text or of token ids."""
    if isinstance(prompt, str):
        return _built(inf.Prompt, "prompt.text", text=prompt)
    if prompt is None or isinstance(prompt, bytes | bytearray | memoryview):
        # A sequence of integers as well, and never meant as token ids.
        raise invalid_request(
            "prompt", f"is of type {type(prompt).__name__}; decode bytes to a string, or give a list of token ids"
        )
    return inf.Prompt(token_ids=_built(inf.TokenIds, "prompt.token_ids", ids=prompt))


def common_fields(options: GenerationOptions) -> dict[str, Any]:
    """Returns the message fields that Generate and Chat share; what is not given stays absent."""
    unknown = set(options) - set(GenerationOptions.__annotations__)
    if unknown:
        known = ", ".join(GenerationOptions.__annotations__)
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; known: {known}")
    values: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(values.get("stop"), str):
        values["stop"] = [values["stop"]]  # a string is a sequence of its letters as well
    return {
        "sampling": _group(gen.SamplingParams, "sampling", _SAMPLING, values),
        "stop": _group(gen.StopCondition, "stop", _STOP, values),
        "options": _group(inf.RequestOptions, "options", _OPTIONS, values),
    }


def cancel_message(request_id: str) -> inf.CancelRequest:
    """Returns the message that ends a request."""
    return _built(inf.CancelRequest, "request_id", request_id=request_id)


def call_timeout(seconds: float | None) -> float | None:
    """Returns a call's time limit as gRPC can carry it; None is no limit."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float):
        raise invalid_request("timeout_seconds", f"is of type {type(seconds).__name__}; give a number of seconds")
    if not seconds >= 0:  # NaN is neither
        raise invalid_request("timeout_seconds", "is not a time; give 0 or more seconds")
    return min(seconds, LONGEST_TIMEOUT_SECONDS)


def call_metadata(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """Returns what authenticates a call; the error never shows the key."""
    if not api_key:
        return ()
    if not isinstance(api_key, str) or not (api_key.isascii() and api_key.isprintable()):
        raise invalid_request(
            "api_key", "holds characters that call metadata cannot carry, such as a line break; use printable ASCII"
        )
    return (("authorization", f"Bearer {api_key}"),)


def _group(kind: type[MessageT], prefix: str, names: tuple[str, ...], values: dict[str, Any]) -> MessageT:
    message = kind()
    for name in names:
        if name in values:
            # One at a time, so that an error can name it.
            message.MergeFrom(_built(kind, f"{prefix}.{name}", **{name: values[name]}))
    return message


def _built(kind: type[MessageT], field: str, **values: Any) -> MessageT:
    try:
        return kind(**values)
    except UnicodeError as error:
        raise invalid_request(field, "holds what UTF-8 cannot carry, such as half of a surrogate pair") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid_request(field, f"cannot be sent: {_cause(error)}; give {_wanted(kind, *values)}") from error


def _cause(error: Exception) -> str:
    # The library's words for a value of another type where it expects text.
    text = str(error)
    return "it is not text" if "bad argument type" in text else text[:120].lower()


def _wanted(kind: type[Message], name: str) -> str:
    field = kind.DESCRIPTOR.fields_by_name[name]
    wanted = _WANTED[field.type]
    return f"a list: each item is {wanted}" if field.is_repeated else wanted
