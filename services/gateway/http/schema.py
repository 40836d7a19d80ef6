"""The JSON bodies of /v1/chat/completions and /v1/completions: types only, values are judged by Generation."""

import difflib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from services.gateway.http.api_error import HttpFault, bad_param
from services.gateway.http.body_sizes import check_prompt_size, check_sizes
from services.gateway.http.content import TOKEN_ID_LIMIT, Content, LogitBias, Prompts, Stop
from services.gateway.http.exchange import REQUEST_ID
from services.gateway.http.neutral import CHAT_NEUTRALS, COMPLETION_NEUTRALS, Neutral, without_neutrals
from services.gateway.http.settings import HttpSettings

# What the wire type of the gRPC API can hold.
Count = Annotated[int, Field(ge=0, le=2**32 - 1)]
Signed = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**32 - 1)]
TokenId = Annotated[int, Field(ge=0, le=TOKEN_ID_LIMIT)]
# OpenAI's seeds are signed, ours are not: a negative one counts from the end.
Seed = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]


class Strict(BaseModel):
    """No conversion between types, no unknown field, no NaN or infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class StreamOptions(Strict):
    """What a stream carries beside the text."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class CommonBody(Strict):
    """What both kinds of completion can ask for."""

    model: str | None = None
    model_version: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Positive | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Signed | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: LogitBias | None = None
    seed: Seed | None = None
    max_tokens: Positive | None = None
    min_tokens: Count | None = None
    stop: Stop | None = None
    stop_token_ids: Annotated[list[TokenId], Field(fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    include_stop_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    priority: Signed | None = None
    do_not_queue: bool | None = None
    cache_policy: Literal["read_write", "read_only", "bypass"] | None = None
    request_id: Annotated[str, Field(pattern=f"^{REQUEST_ID.pattern}$")] | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None


class FunctionCall(Strict):
    """A call's function and its arguments, a JSON text."""

    name: str
    arguments: str


class ToolCallBody(Strict):
    """A call that the assistant asked for earlier in the conversation."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class MessageBody(Strict):
    """One turn of the conversation, also as a client echoes an answer of ours."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCallBody], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    reasoning_content: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None


class ChatBody(CommonBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[MessageBody], Field(fail_fast=True)]
    max_completion_tokens: Positive | None = None


class CompletionBody(CommonBody):
    """POST /v1/completions."""

    prompt: Prompts


# In JSON's words, not in Python's.
_WORDS = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "a whole number",
    "float_type": "a number",
    "none_required": "null",
}

AnyBody = TypeVar("AnyBody", bound=CommonBody)


def chat_body(values: dict[str, Any]) -> ChatBody:
    """Checks a chat body; raises HttpFault naming the first wrong parameter."""
    check_sizes(values)
    body = _checked(ChatBody, values, CHAT_NEUTRALS)
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise bad_param("max_tokens", "max_tokens and max_completion_tokens differ; send one of them")
    for index, message in enumerate(body.messages):
        if message.content is None and not message.tool_calls:
            param = f"messages[{index}].content"
            raise bad_param(param, f"{param}: missing; send a string or a list of text parts", "missing_parameter")
    return body


def completion_body(values: dict[str, Any], settings: HttpSettings) -> CompletionBody:
    """Checks a completion body; raises HttpFault naming the first wrong parameter."""
    check_sizes(values)
    check_prompt_size(values.get("prompt"), settings)
    return _checked(CompletionBody, values, COMPLETION_NEUTRALS)


def _checked(kind: type[AnyBody], values: dict[str, Any], neutrals: dict[str, Neutral]) -> AnyBody:
    try:
        body = kind.model_validate(without_neutrals(values, neutrals))
    except ValidationError as error:
        known = [*kind.model_fields, *neutrals]
        raise _fault(error.errors(include_url=False, include_context=False)[0], known) from None
    if body.stream_options is not None and not body.stream:
        raise bad_param("stream_options", "stream_options: only with stream=true", "invalid_value")
    return body


def _fault(error: ErrorDetails, known: list[str]) -> HttpFault:
    param = _param(error["loc"])
    kind = error["type"]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(param, known, n=1) if len(error["loc"]) == 1 else ()
        hint = f"; did you mean {near[0]}?" if near else ""
        return bad_param(param, f"{param}: unknown parameter{hint}", "unknown_parameter")
    if kind == "missing":
        return bad_param(param, f"{param}: missing, and needed", "missing_parameter")
    what = _WORDS.get(kind) or error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    if kind.endswith("_type"):
        expected = what if what.startswith("expected") else f"expected {what}"
        return bad_param(param, f"{param}: {expected}, got {_json_kind(error['input'])}", "invalid_type")
    return bad_param(param, f"{param}: should be {what}" if what != error["msg"] else f"{param}: {what}")


def _param(location: tuple[int | str, ...]) -> str:
    name = ""
    for step in location:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def _json_kind(value: object) -> str:
    kinds: dict[type, str] = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
    }
    return kinds.get(type(value), "an object")
