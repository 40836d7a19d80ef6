"""What a caller asks for, as plain values: the same for every protocol. None means absent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that gets what the tokenizer adds."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that are used as they are."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant asked for earlier in the conversation."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: the role's name in lower case, "" when it is missing; None where a part holds nothing we know."""

    role: str
    parts: tuple[str | None, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """Joins the parts as they stand."""
        return "".join(part or "" for part in self.parts)

    @property
    def texts(self) -> list[str]:
        """Lists everything that the caller wrote."""
        calls = (text for call in self.tool_calls for text in (call.id, call.name, call.arguments))
        return [self.text, self.name, self.tool_call_id, *calls]

    @property
    def characters(self) -> int:
        """Counts everything that the caller wrote."""
        return sum(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation that gets the model's chat template."""

    messages: tuple[Message, ...]
    wants_tools: bool = False
    add_generation_prompt: bool = True
    template_variables: Mapping[str, Any] = field(default_factory=dict)


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """When a generation ends."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    ignores_eos: bool = False
    includes_match: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What comes back."""

    n: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    echo: bool = False
    returns_token_ids: bool = False
    skips_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """Which model, how urgent, and how the request is known."""

    model: str = ""
    model_version: str | None = None
    priority: int | None = None
    must_not_queue: bool = False
    cache_policy: int = 0
    request_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerationInput:
    """A whole request; the prompt is None where the caller gave none, the constraint is the name of its kind."""

    prompt: Prompt | None
    sampling: Sampling = Sampling()
    stop: Stop = Stop()
    output: Output = Output()
    constraint: str | None = None
    options: Options = Options()
