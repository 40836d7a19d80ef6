"""Reads the public API's messages into plain values."""

from typing import Any

from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.struct_pb2 import Struct

from headrace.v1 import generation_pb2, inference_pb2
from services.common.errors import InvalidRequest
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
    ToolCall,
)


def generation_input(request: inference_pb2.GenerateRequest) -> GenerationInput:
    """Reads a GenerateRequest."""
    return GenerationInput(
        prompt=prompt_input(request.prompt),
        sampling=_sampling(request.sampling),
        stop=_stop(request.stop),
        output=_output(request.output),
        constraint=request.constraint.WhichOneof("constraint"),
        options=_options(request.options),
    )


def generate_request(request: inference_pb2.ChatRequest) -> inference_pb2.GenerateRequest:
    """Turns a ChatRequest into the GenerateRequest that means the same."""
    return inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(messages=request.conversation),
        sampling=request.sampling,
        stop=request.stop,
        output=request.output,
        constraint=request.constraint,
        options=request.options,
    )


def prompt_input(prompt: inference_pb2.Prompt) -> Prompt | None:
    """Reads a Prompt; None when it holds nothing."""
    match prompt.WhichOneof("prompt"):
        case "text":
            return TextPrompt(prompt.text)
        case "token_ids":
            return TokenPrompt(tuple(prompt.token_ids.ids))
        case "messages":
            return _chat(prompt.messages)
    return None


def _chat(conversation: inference_pb2.Conversation) -> ChatPrompt:
    mode = inference_pb2.ToolChoice.Mode
    # Tools that must not be called change nothing; every other use of them asks for something.
    is_off = conversation.tool_choice.mode == mode.MODE_NONE
    asks = bool(conversation.tools) or conversation.tool_choice.mode in (mode.MODE_REQUIRED, mode.MODE_AUTO)
    return ChatPrompt(
        messages=tuple(_message(message) for message in conversation.messages),
        wants_tools=asks and not is_off,
        add_generation_prompt=_optional(conversation, "add_generation_prompt") is not False,
        template_variables=_template_variables(conversation.template_kwargs),
    )


def _template_variables(given: Struct) -> Any:
    try:
        return _whole_numbers(MessageToDict(given))
    except (ValueError, JsonError):
        # Of what a Struct can say, only NaN and the infinities are not JSON.
        raise InvalidRequest(
            "prompt.messages.template_kwargs", "holds a number that is not finite; send finite numbers"
        ) from None


def _message(message: inference_pb2.Message) -> Message:
    known = message.role in inference_pb2.Role.values() and message.role != inference_pb2.ROLE_UNSPECIFIED
    role = inference_pb2.Role.Name(message.role).removeprefix("ROLE_").lower() if known else ""
    return Message(
        role=role,
        parts=tuple(part.text if part.WhichOneof("part") == "text" else None for part in message.parts),
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def _sampling(sampling: generation_pb2.SamplingParams) -> Sampling:
    return Sampling(
        temperature=_optional(sampling, "temperature"),
        top_p=_optional(sampling, "top_p"),
        top_k=_optional(sampling, "top_k"),
        seed=_optional(sampling, "seed"),
        min_p=_optional(sampling, "min_p"),
        typical_p=_optional(sampling, "typical_p"),
        repetition_penalty=_optional(sampling, "repetition_penalty"),
        presence_penalty=_optional(sampling, "presence_penalty"),
        frequency_penalty=_optional(sampling, "frequency_penalty"),
        logit_bias=dict(sampling.logit_bias),
        allowed_token_ids=tuple(sampling.allowed_token_ids),
        bad_words=tuple(sampling.bad_words),
    )


def _stop(stop: generation_pb2.StopCondition) -> Stop:
    return Stop(
        max_tokens=_optional(stop, "max_tokens"),
        min_tokens=_optional(stop, "min_tokens"),
        strings=tuple(stop.stop),
        token_ids=tuple(stop.stop_token_ids),
        ignores_eos=stop.ignore_eos,
        includes_match=stop.include_stop_in_output,
    )


def _output(output: inference_pb2.OutputOptions) -> Output:
    return Output(
        n=_optional(output, "n"),
        logprobs=output.logprobs,
        top_logprobs=output.top_logprobs,
        prompt_logprobs=output.prompt_logprobs,
        echo=output.echo,
        returns_token_ids=output.return_token_ids,
        skips_special_tokens=_optional(output, "skip_special_tokens") is not False,
    )


def _options(options: inference_pb2.RequestOptions) -> Options:
    return Options(
        model=options.model,
        model_version=_optional(options, "model_version"),
        priority=_optional(options, "priority"),
        must_not_queue=options.do_not_queue,
        cache_policy=options.cache_policy,
        request_id=options.request_id,
        labels=dict(options.labels),
    )


def _optional(message: ProtoMessage, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _whole_numbers(value: Any) -> Any:
    """Struct knows floats only; templates compare and count with whole numbers."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
