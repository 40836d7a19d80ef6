"""Checks every field of a request that can be checked without a tokenizer: name, limit, and the way out."""

import math
import re
from collections.abc import Iterable

from services.common.errors import InvalidRequest
from services.gateway.float_text import shortest_float32
from services.gateway.request import (
    ChatPrompt,
    GenerationInput,
    Message,
    Options,
    Output,
    Prompt,
    Sampling,
    Stop,
    TextPrompt,
    TokenPrompt,
)

REQUEST_ID_CHARACTERS = 128
MODEL_NAME_CHARACTERS = 256
STOP_STRINGS = 16
STOP_CHARACTERS = 256
STOP_TOKEN_IDS = 64
LABELS = 16
LABEL_CHARACTERS = 64
MESSAGES = 4096
LOWEST_PRIORITY = 9
CACHE_POLICIES = 4
PROMPT_BYTES = 4 * 1024 * 1024

_REQUEST_ID = re.compile(r"[!-~]+")


def validate(given: GenerationInput) -> None:
    """Raises InvalidRequest for the first field that is wrong or that this version cannot honour."""
    validate_options(given.options)
    validate_prompt(given.prompt)
    _validate_sampling(given.sampling)
    _validate_stop(given.stop)
    _validate_output(given.output)
    if given.constraint is not None:
        raise _unsupported(f"constraint.{given.constraint}", "leave the constraint out")


def validate_prompt(prompt: Prompt | None) -> None:
    """Checks a prompt's shape and size."""
    if prompt is None:
        raise InvalidRequest("prompt", "is missing; give text, token_ids or messages")
    if isinstance(prompt, TokenPrompt) and not prompt.token_ids:
        raise InvalidRequest("prompt.token_ids", "is empty; give at least 1 token id")
    if isinstance(prompt, TextPrompt):
        require_size("prompt.text", prompt.text)
    if isinstance(prompt, ChatPrompt):
        _validate_chat(prompt)


def validate_token_ids(given: GenerationInput, vocabulary_size: int) -> None:
    """Checks every token id of the request against the model's vocabulary."""
    if isinstance(given.prompt, TokenPrompt):
        require_in_vocabulary("prompt.token_ids", given.prompt.token_ids, vocabulary_size)
    require_in_vocabulary("stop.stop_token_ids", given.stop.token_ids, vocabulary_size)
    require_in_vocabulary("sampling.logit_bias", given.sampling.logit_bias, vocabulary_size)
    require_in_vocabulary("sampling.allowed_token_ids", given.sampling.allowed_token_ids, vocabulary_size)
    if given.sampling.logit_bias:
        raise _unsupported("sampling.logit_bias", "leave it out")
    if given.sampling.allowed_token_ids:
        raise _unsupported("sampling.allowed_token_ids", "leave it out")


def require_in_vocabulary(field: str, token_ids: Iterable[int], vocabulary_size: int) -> None:
    """Raises InvalidRequest for an id that the model does not have."""
    outside = next((token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size), None)
    if outside is not None:
        raise InvalidRequest(
            field, f"{outside} is outside the vocabulary; this model's token ids go from 0 to {vocabulary_size - 1}"
        )


def validate_options(options: Options) -> None:
    """Checks how a request names itself, its model and its urgency."""
    validate_request_id(options.request_id)
    _require_length("options.model", options.model, MODEL_NAME_CHARACTERS)
    _require_length("options.model_version", options.model_version or "", MODEL_NAME_CHARACTERS)
    if options.priority is not None and not 0 <= options.priority <= LOWEST_PRIORITY:
        raise InvalidRequest(
            "options.priority", f"{options.priority} is out of range; 0 is the highest, {LOWEST_PRIORITY} the lowest"
        )
    if not 0 <= options.cache_policy < CACHE_POLICIES:
        raise InvalidRequest("options.cache_policy", f"{options.cache_policy} is not a policy; see CachePolicy")
    if len(options.labels) > LABELS:
        raise InvalidRequest("options.labels", f"{len(options.labels)} labels are too many; send at most {LABELS}")
    for key, value in options.labels.items():
        for text in (key, value):
            if len(text) > LABEL_CHARACTERS or not text.isprintable():
                raise InvalidRequest(
                    "options.labels", f"keys and values are at most {LABEL_CHARACTERS} printable characters"
                )
        if not key:
            raise InvalidRequest("options.labels", "holds an empty key; name it")


def validate_request_id(request_id: str) -> None:
    """Checks the client's own id; empty means that the gateway makes one."""
    _require_length("options.request_id", request_id, REQUEST_ID_CHARACTERS)
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise InvalidRequest("options.request_id", "use printable ASCII characters without spaces")


def _validate_chat(prompt: ChatPrompt) -> None:
    field = "prompt.messages"
    if not prompt.messages:
        raise InvalidRequest(field, "is empty; send at least 1 message")
    if len(prompt.messages) > MESSAGES:
        raise InvalidRequest(field, f"{len(prompt.messages)} messages are too many; send at most {MESSAGES}")
    if prompt.wants_tools:
        raise _unsupported("prompt.messages.tools", "leave tools and tool_choice out, or set tool_choice to none")
    total = 0
    for index, message in enumerate(prompt.messages):
        _validate_message(f"{field}[{index}]", message)
        total += message.characters
        if total > PROMPT_BYTES:
            raise _too_large(field)


def _validate_message(field: str, message: Message) -> None:
    if not message.role:
        raise InvalidRequest(f"{field}.role", "is missing or unknown; use system, developer, user, assistant or tool")
    if None in message.parts:
        raise InvalidRequest(f"{field}.parts", "holds a part without text; only text parts are supported")
    if not message.parts and not message.tool_calls:
        raise InvalidRequest(f"{field}.parts", "is empty; send the message's text")


def _validate_sampling(sampling: Sampling) -> None:
    _require_range("sampling.temperature", sampling.temperature, 0, 2)
    _require_range("sampling.top_p", sampling.top_p, 0, 1)
    if sampling.top_k is not None and sampling.top_k < -1:
        raise InvalidRequest("sampling.top_k", f"{sampling.top_k} is out of range; use 1 or more, or 0 or -1 for off")
    _require_range("sampling.min_p", sampling.min_p, 0, 1)
    _require_range("sampling.presence_penalty", sampling.presence_penalty, -2, 2)
    _require_range("sampling.frequency_penalty", sampling.frequency_penalty, -2, 2)
    _require_range("sampling.typical_p", sampling.typical_p, 0, 1, excludes_low=True)
    _require_range("sampling.repetition_penalty", sampling.repetition_penalty, 0, math.inf, excludes_low=True)
    neutral = {"min_p": 0, "typical_p": 1, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    for name, value in neutral.items():
        if getattr(sampling, name) not in (None, value):
            raise _unsupported(f"sampling.{name}", f"leave it out or set it to {value}, which is off")
    for bias in sampling.logit_bias.values():
        _require_range("sampling.logit_bias", bias, -100, 100)
    if sampling.bad_words:
        raise _unsupported("sampling.bad_words", "leave it out")


def _validate_stop(stop: Stop) -> None:
    if stop.max_tokens is not None and stop.max_tokens < 1:
        raise InvalidRequest("stop.max_tokens", f"{stop.max_tokens} is too few; ask for at least 1 token")
    if stop.min_tokens and stop.max_tokens is not None and stop.min_tokens > stop.max_tokens:
        raise InvalidRequest(
            "stop.min_tokens", f"{stop.min_tokens} is more than max_tokens ({stop.max_tokens}); lower it"
        )
    if len(stop.strings) > STOP_STRINGS:
        raise InvalidRequest("stop.stop", f"{len(stop.strings)} strings are too many; send at most {STOP_STRINGS}")
    if len(stop.token_ids) > STOP_TOKEN_IDS:
        raise InvalidRequest(
            "stop.stop_token_ids", f"{len(stop.token_ids)} ids are too many; send at most {STOP_TOKEN_IDS}"
        )
    for text in stop.strings:
        if not text:
            raise InvalidRequest("stop.stop", "holds an empty string, which would match at once; leave it out")
        _require_length("stop.stop", text, STOP_CHARACTERS)


def _validate_output(output: Output) -> None:
    if output.n is not None and output.n < 1:
        raise InvalidRequest("output.n", f"{output.n} is too few; ask for 1 choice")
    if output.n is not None and output.n > 1:
        raise _unsupported("output.n", f"{output.n} choices were asked for; send 1, or send several requests")
    for name in ("logprobs", "top_logprobs", "prompt_logprobs", "echo"):
        if getattr(output, name):
            raise _unsupported(f"output.{name}", "leave it out")


def _require_range(field: str, value: float | None, low: float, high: float, *, excludes_low: bool = False) -> None:
    if value is None:
        return
    is_inside = (value > low if excludes_low else value >= low) and value <= high and math.isfinite(value)
    if not is_inside:
        upper = "" if math.isinf(high) else f" and at most {high}" if excludes_low else f" to {high}"
        lower = f"greater than {low}" if excludes_low else f"from {low}"
        kind = "finite number" if math.isinf(high) else "number"
        shown = shortest_float32(value) if math.isfinite(value) else "this number"
        raise InvalidRequest(field, f"{shown} is out of range; use a {kind} {lower}{upper}")


def _require_length(field: str, text: str, characters: int) -> None:
    if len(text) > characters:
        raise InvalidRequest(field, f"{len(text)} characters are too many; use at most {characters}")


def require_size(field: str, text: str) -> None:
    """Raises InvalidRequest for a text that is larger than any prompt may be."""
    # Counting characters first spares encoding what is too large anyway.
    if len(text) > PROMPT_BYTES or len(text.encode()) > PROMPT_BYTES:
        raise _too_large(field)


def _too_large(field: str) -> InvalidRequest:
    return InvalidRequest(field, f"is larger than {PROMPT_BYTES} bytes ({PROMPT_BYTES // 2**20} MiB); shorten it")


def _unsupported(field: str, way_out: str) -> InvalidRequest:
    return InvalidRequest(field, f"is not supported by this version; {way_out}")
