"""From JSON bodies to the gRPC API's requests: the same field by field, so that both say the same."""

from collections.abc import Sequence

from headrace.v1.generation_pb2 import (
    CACHE_POLICY_BYPASS,
    CACHE_POLICY_READ_ONLY,
    CACHE_POLICY_READ_WRITE,
    CachePolicy,
    SamplingParams,
    StopCondition,
)
from headrace.v1.inference_pb2 import (
    ROLE_ASSISTANT,
    ROLE_DEVELOPER,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    Conversation,
    GenerateRequest,
    Message,
    OutputOptions,
    Part,
    Prompt,
    RequestOptions,
    Role,
    TokenIds,
    ToolCall,
)
from services.gateway.http.content import OnePrompt
from services.gateway.http.schema import ChatBody, CommonBody, CompletionBody, MessageBody
from services.gateway.validation import REQUEST_ID_CHARACTERS

_SEEDS = 2**64

_ROLES: dict[str, Role] = {
    "system": ROLE_SYSTEM,
    "developer": ROLE_DEVELOPER,
    "user": ROLE_USER,
    "assistant": ROLE_ASSISTANT,
    "tool": ROLE_TOOL,
}
_CACHE_POLICIES: dict[str, CachePolicy] = {
    "read_write": CACHE_POLICY_READ_WRITE,
    "read_only": CACHE_POLICY_READ_ONLY,
    "bypass": CACHE_POLICY_BYPASS,
}


def chat_request(body: ChatBody, request_id: str) -> GenerateRequest:
    """Builds the request of a chat body."""
    conversation = Conversation(messages=[_message(message) for message in body.messages])
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return _request(Prompt(messages=conversation), body, max_tokens, request_id)


def completion_requests(body: CompletionBody, request_id: str) -> list[GenerateRequest]:
    """Builds one request per prompt of a completion body."""
    ids = numbered_ids(request_id, len(body.prompt))
    return [
        _request(_prompt(prompt), body, body.max_tokens, one_id)
        for prompt, one_id in zip(body.prompt, ids, strict=True)
    ]


def numbered_ids(request_id: str, count: int) -> Sequence[str]:
    """Names the generations of one HTTP request; a long id gives way to the number."""
    if count == 1:
        return [request_id]
    suffixes = [f"-{index}" for index in range(count)]
    return [request_id[: REQUEST_ID_CHARACTERS - len(suffix)] + suffix for suffix in suffixes]


def _request(prompt: Prompt, body: CommonBody, max_tokens: int | None, request_id: str) -> GenerateRequest:
    return GenerateRequest(
        prompt=prompt,
        sampling=_sampling(body),
        stop=StopCondition(
            max_tokens=max_tokens,
            min_tokens=body.min_tokens,
            stop=body.stop or (),
            stop_token_ids=body.stop_token_ids or (),
            ignore_eos=bool(body.ignore_eos),
            include_stop_in_output=bool(body.include_stop_in_output),
        ),
        output=OutputOptions(
            n=body.n,
            return_token_ids=bool(body.return_token_ids),
            skip_special_tokens=body.skip_special_tokens,
        ),
        options=RequestOptions(
            model=body.model or "",
            model_version=body.model_version,
            priority=body.priority,
            do_not_queue=bool(body.do_not_queue),
            cache_policy=_CACHE_POLICIES[body.cache_policy] if body.cache_policy is not None else None,
            request_id=request_id,
        ),
    )


def _sampling(body: CommonBody) -> SamplingParams:
    # None leaves an optional field absent; 0 sets it to 0.
    return SamplingParams(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=None if body.seed is None else body.seed % _SEEDS,
        min_p=body.min_p,
        typical_p=body.typical_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=body.logit_bias,
    )


def _prompt(prompt: OnePrompt) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(text=prompt)
    return Prompt(token_ids=TokenIds(ids=prompt))


def _message(message: MessageBody) -> Message:
    return Message(
        role=_ROLES[message.role],
        parts=[Part(text=text) for text in message.content or ()],
        tool_calls=[
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls or ()
        ],
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
    )
