"""Bad input is refused with field and limit, and a neighbour's stream goes on undisturbed."""

import asyncio
import math
from typing import Any

import grpc
import pytest
import structlog
from gateway_stack import (
    CONTEXT,
    VOCABULARY,
    Refusal,
    Stack,
    collect,
    conversation,
    ids_of,
    refusal_of,
    saying,
    stack,
    text_request,
)
from polling import until
from scripted_runner import ScriptedRunner

from headrace.v1 import inference_pb2 as pb

X = ids_of(b"x")[0]
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def token_request(ids: list[int], **fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=ids)), **fields)


async def refused_both_ways(deployed: Stack, request: pb.GenerateRequest) -> Refusal:
    """Asks by stream and by unary call, and expects the same answer."""
    by_stream = await refusal_of(deployed.client.StreamGenerate(request))
    by_unary = await refusal_of(deployed.client.Generate(request))
    assert by_stream == by_unary
    return by_stream


BAD = [
    (pb.GenerateRequest(), "prompt", "missing"),
    (token_request([]), "prompt.token_ids", "at least 1"),
    (token_request([VOCABULARY]), "prompt.token_ids", str(VOCABULARY - 1)),
    (token_request([X] * CONTEXT), "prompt", str(CONTEXT)),
    (token_request([X] * 8, stop={"max_tokens": CONTEXT - 7}), "stop.max_tokens", f"at most {CONTEXT - 8}"),
    (text_request("x" * (CONTEXT + 1)), "prompt", str(CONTEXT)),
    (text_request("x" * 4_000_000), "prompt", "at least"),
    (text_request("x" * 5_000_000), "prompt.text", "4 MiB"),
    (text_request(stop={"max_tokens": 0}), "stop.max_tokens", "at least 1"),
    (text_request(sampling={"temperature": 3}), "sampling.temperature", "from 0 to 2"),
    (text_request(sampling={"logit_bias": {VOCABULARY: 5}}), "sampling.logit_bias", str(VOCABULARY)),
    (text_request(output={"n": 3}), "output.n", "not supported"),
    (text_request(constraint={"regex": "a"}), "constraint.regex", "not supported"),
    (text_request(options={"request_id": "x" * 129}), "options.request_id", "128"),
    (pb.GenerateRequest(prompt=pb.Prompt(messages=pb.Conversation())), "prompt.messages", "at least 1"),
    (
        pb.GenerateRequest(prompt=pb.Prompt(messages=pb.Conversation(template_kwargs={"x": math.nan}))),  # type: ignore[arg-type]
        "prompt.messages.template_kwargs",
        "not finite",
    ),
]


async def test_bad_input_is_refused_with_its_field_while_a_neighbour_streams_on() -> None:
    """The issue's list of bad input; VAL-1, VAL-2, VAL-4."""
    async with stack(saying([], then=X)) as deployed:
        neighbour = asyncio.create_task(collect(deployed.client.StreamGenerate(text_request(stop={"max_tokens": 400}))))
        for request, field, says in BAD:
            refusal = await refused_both_ways(deployed, request)
            assert (refusal.code, refusal.fields) == (INVALID, [field]), refusal
            assert says in refusal.message
            assert refusal.reason in ("INVALID_ARGUMENT", "CONTEXT_LENGTH_EXCEEDED")
        chunks = await neighbour
    assert "".join(chunk.text for chunk in chunks) == "x" * 400


async def test_an_overlong_request_says_so_by_its_reason() -> None:
    """VAL-4."""
    async with stack(saying([])) as deployed:
        refusal = await refused_both_ways(deployed, token_request([X] * 8, stop={"max_tokens": CONTEXT}))
    assert refusal.reason == "CONTEXT_LENGTH_EXCEEDED"
    for number in (str(CONTEXT), "8"):
        assert number in refusal.message


async def test_the_limit_is_the_runners_where_its_memory_is_smaller_than_the_context() -> None:
    """VAL-4: the effective limit, not the configured one."""
    async with stack(saying([]), hello={"block_count": 16}) as deployed:
        tokens = await deployed.client.Tokenize(pb.TokenizeRequest(prompt=pb.Prompt(text="a")))
        refusal = await refused_both_ways(deployed, token_request([X] * tokens.context_length))
        assert tokens.context_length < CONTEXT
        assert refusal.reason == "CONTEXT_LENGTH_EXCEEDED"
        assert str(tokens.context_length) in refusal.message


async def test_invalid_utf8_is_refused_and_the_next_request_is_served() -> None:
    broken = b"\x0a\x03\x0a\x01\xff"
    async with stack(saying(ids_of(b"ok"))) as deployed:
        call = deployed.channel.unary_unary("/headrace.v1.InferenceService/Generate")
        refusal = await refusal_of(call(broken))
        assert refusal.code is not grpc.StatusCode.OK
        assert (await deployed.client.Generate(text_request())).choices[0].text == "ok"


async def test_an_unknown_model_is_not_found_and_named() -> None:
    async with stack(saying([])) as deployed:
        refusal = await refused_both_ways(deployed, text_request(options={"model": "gpt"}))
        assert (refusal.code, refusal.reason, refusal.resource) == (
            grpc.StatusCode.NOT_FOUND,
            "MODEL_NOT_FOUND",
            "gpt",
        )
        version = await refused_both_ways(deployed, text_request(options={"model_version": "v9"}))
        assert version.code is grpc.StatusCode.NOT_FOUND
        for call in (
            deployed.client.Tokenize(pb.TokenizeRequest(prompt=pb.Prompt(text="a"), model="gpt")),
            deployed.client.Detokenize(pb.DetokenizeRequest(token_ids=[5], model="gpt")),
        ):
            assert (await refusal_of(call)).reason == "MODEL_NOT_FOUND"


async def test_tokenize_and_detokenize_check_their_input_too() -> None:
    async with stack(saying([])) as deployed:
        outside = await refusal_of(deployed.client.Detokenize(pb.DetokenizeRequest(token_ids=[VOCABULARY])))
        assert (outside.code, outside.fields) == (INVALID, ["token_ids"])
        missing = await refusal_of(deployed.client.Tokenize(pb.TokenizeRequest()))
        assert (missing.code, missing.fields) == (INVALID, ["prompt"])
        chat = pb.Prompt(messages=conversation())
        chat.messages.messages[0].role = pb.ROLE_TOOL
        refused = await refusal_of(deployed.client.Tokenize(pb.TokenizeRequest(prompt=chat)))
        assert "unknown role tool" in refused.message


async def test_without_a_runner_callers_are_told_when_to_try_again() -> None:
    """API-5: no runner, and for so long that the scheduler waits no more."""
    async with stack(saying([]), runner_wait_seconds=0.4) as deployed:
        await until(lambda: deployed.gateway.readiness.is_ready)
        await deployed.runner.close()
        await until(lambda: not deployed.gateway.readiness.is_ready, seconds=3)
        waited = await refusal_of(deployed.client.Generate(text_request()))
        # Whether gateway or scheduler notices first, and so the wording, is a matter of moments.
        streamed = await refusal_of(deployed.client.StreamGenerate(text_request()))
    for item in (waited, streamed):
        assert (item.code, item.reason) == (grpc.StatusCode.UNAVAILABLE, "NO_RUNNER")
        assert item.retry_seconds
        assert "no runner" in item.message
        assert "cannot be used" not in item.message


async def test_a_request_waits_for_a_runner_that_has_just_gone_away() -> None:
    async with stack(saying([X, X])) as deployed:
        await until(lambda: deployed.gateway.readiness.is_ready)
        await deployed.runner.close()
        await until(lambda: not deployed.gateway.readiness.is_ready, seconds=3)
        asked = asyncio.ensure_future(deployed.client.Generate(text_request()))
        await until(lambda: len(deployed.scheduler.parts.queue) == 1, seconds=3)
        async with ScriptedRunner(deployed.scheduler.address, deployed.runner.hello, saying([X, X])):
            answer = await asked
    assert answer.choices[0].text == "xx"


async def test_without_a_scheduler_callers_are_told_quickly() -> None:
    async with stack(saying([]), scheduler="unix:/nonexistent/scheduler.sock") as deployed:
        refusal = await asyncio.wait_for(refused_both_ways(deployed, text_request()), 2)
    assert refusal.code is grpc.StatusCode.UNAVAILABLE
    assert refusal.retry_seconds
    assert "scheduler" in refusal.message


@pytest.mark.parametrize("call", ["ResumeStream", "Explain"])
async def test_calls_of_later_versions_say_that_they_are_not_built(call: str) -> None:
    async with stack(saying([])) as deployed:
        request = {"ResumeStream": pb.ResumeStreamRequest(), "Explain": pb.ExplainRequest()}[call]
        refusal = await refusal_of(getattr(deployed.client, call)(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")


@pytest.mark.parametrize(("method", "kind"), [("StreamGenerate", "unary_stream"), ("Generate", "unary_unary")])
@pytest.mark.parametrize("raw", [b"\xff\xff", pb.GenerateRequest(prompt=pb.Prompt(text="A")).SerializeToString()[:-1]])
async def test_bytes_that_are_no_message_are_the_callers_error(method: str, kind: str, raw: bytes) -> None:
    async with stack(saying([], then=X)) as deployed:
        call = getattr(deployed.channel, kind)(f"/headrace.v1.InferenceService/{method}")
        refusal = await refusal_of(call(raw))
    assert (refusal.code, refusal.reason) == (INVALID, "INVALID_ARGUMENT")
    assert "cannot be decoded" in refusal.message


async def test_a_message_that_cannot_be_read_is_recorded_like_every_refusal() -> None:
    conversation_of_nan = pb.Conversation(template_kwargs={"x": math.nan})  # type: ignore[arg-type]
    request = pb.GenerateRequest(prompt=pb.Prompt(messages=conversation_of_nan), options={"request_id": "r-1"})
    async with stack(saying([], then=X)) as deployed:
        with structlog.testing.capture_logs() as lines:
            await refusal_of(deployed.client.Generate(request))
    done = [line for line in lines if line.get("stage") == "DONE"]
    assert [(line["request_id"], line["code"]) for line in done] == [("r-1", "INVALID_ARGUMENT")]
