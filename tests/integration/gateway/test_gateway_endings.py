"""How requests end before their time: closed, cancelled, late, or with a runner or scheduler gone."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from gateway_stack import collect, ids_of, refusal_of, saying, stack, text_request
from polling import until

from headrace.v1 import inference_pb2 as pb
from headrace.v1 import inference_pb2_grpc
from services.common.grpc_options import open_channel
from services.gateway.scheduler_client import SchedulerClient, SubmitCall

# What the architecture promises for a closed stream: its blocks are free within a second.
SOON = 1.0
ENDLESS = saying([], then=ids_of(b"x")[0])


@pytest.mark.parametrize("chunks", [0, 3])
async def test_closing_a_stream_frees_its_blocks_within_a_second(chunks: int) -> None:
    """CAN-1."""
    async with stack(ENDLESS) as deployed:
        call = deployed.client.StreamGenerate(text_request())
        for _ in range(chunks):
            await call.read()
        await until(lambda: deployed.held_blocks > 0)
        call.cancel()
        await until(lambda: deployed.held_blocks == 0 and deployed.running == 0, SOON)
        await until(lambda: deployed.scheduler.parts.admission.open_requests == 0)


async def test_closing_a_unary_call_frees_its_blocks_within_a_second() -> None:
    """CAN-1: worst for calls that do not stream."""
    async with stack(ENDLESS) as deployed:
        call = deployed.client.Generate(text_request())
        await until(lambda: deployed.held_blocks > 0)
        call.cancel()
        await until(lambda: deployed.held_blocks == 0 and deployed.running == 0, SOON)


async def test_a_client_that_vanishes_frees_its_blocks_within_a_second() -> None:
    """CAN-1: the connection ends, not the call."""
    async with stack(ENDLESS) as deployed:
        calls = [deployed.client.StreamGenerate(text_request()) for _ in range(5)]
        for call in calls:
            await call.read()
        await deployed.channel.close()
        await until(lambda: deployed.held_blocks == 0 and deployed.running == 0, SOON)


async def test_cancel_ends_the_stream_with_a_status_and_frees_its_blocks() -> None:
    async with stack(ENDLESS) as deployed:
        call = deployed.client.StreamGenerate(text_request(options={"request_id": "r-1"}))
        await call.read()
        assert (await deployed.client.Cancel(pb.CancelRequest(request_id="r-1"))).was_running
        refusal = await refusal_of(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.CANCELLED, "CANCELLED")
        await until(lambda: deployed.held_blocks == 0, SOON)
        assert not (await deployed.client.Cancel(pb.CancelRequest(request_id="r-1"))).was_running


async def test_a_cancel_while_the_request_is_being_submitted_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has left the admission, and nothing of it reads from the scheduler yet."""
    is_submitting, may_go_on = asyncio.Event(), asyncio.Event()
    write = SchedulerClient.submit

    @asynccontextmanager
    async def slow_write(client: SchedulerClient, start: Any, **settings: Any) -> AsyncIterator[SubmitCall]:
        async with write(client, start, **settings) as call:
            is_submitting.set()
            await may_go_on.wait()
            yield call

    monkeypatch.setattr(SchedulerClient, "submit", slow_write)
    async with stack(ENDLESS) as deployed:
        call = deployed.client.StreamGenerate(text_request(options={"request_id": "r-1"}))
        await is_submitting.wait()
        assert (await deployed.client.Cancel(pb.CancelRequest(request_id="r-1"))).was_running
        may_go_on.set()
        refusal = await refusal_of(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.CANCELLED, "CANCELLED")
        await until(lambda: deployed.held_blocks == 0 and deployed.running == 0, SOON)


async def test_cancel_needs_an_id() -> None:
    async with stack(ENDLESS) as deployed:
        refusal = await refusal_of(deployed.client.Cancel(pb.CancelRequest()))
    assert refusal.fields == ["request_id"]


async def test_a_second_request_with_a_running_ones_id_is_refused_and_the_first_goes_on() -> None:
    async with stack(ENDLESS) as deployed:
        request = text_request(options={"request_id": "r-1"}, stop={"max_tokens": 300})
        first = asyncio.create_task(collect(deployed.client.StreamGenerate(request)))
        await until(lambda: deployed.held_blocks > 0)
        refusal = await refusal_of(deployed.client.StreamGenerate(request))
        assert refusal.code is grpc.StatusCode.ALREADY_EXISTS
        assert "".join(chunk.text for chunk in await first) == "x" * 300


@pytest.mark.parametrize("method", ["StreamGenerate", "Generate"])
async def test_a_deadline_ends_the_work_and_says_why(method: str) -> None:
    """CAN-1: a deadline while the runner computes."""
    async with stack(ENDLESS) as deployed:
        deployed.runner.is_open.clear()
        began = time.monotonic()
        refusal = await refusal_of(getattr(deployed.client, method)(text_request(), timeout=1))
        assert time.monotonic() - began < 1.5
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        deployed.runner.is_open.set()
        await until(lambda: deployed.held_blocks == 0 and deployed.running == 0, SOON)


async def test_a_lost_scheduler_ends_the_stream_as_unavailable() -> None:
    async with stack(ENDLESS) as deployed:
        call = deployed.client.StreamGenerate(text_request())
        await call.read()
        await deployed.scheduler.server.server.stop(0)
        refusal = await asyncio.wait_for(refusal_of(call), 2)
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        assert refusal.retry_seconds


async def test_a_failed_generation_is_a_status_and_not_a_silent_end() -> None:
    async with stack(ENDLESS) as deployed:
        call = deployed.client.StreamGenerate(text_request(options={"request_id": "bad"}))
        await call.read()
        deployed.runner.engine.failing.add("bad")
        refusal = await refusal_of(call)
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert refusal.reason != "INTERNAL"


async def test_a_slow_reader_loses_nothing_and_its_work_does_not_wait_for_it() -> None:
    """GRPC-9: the work is done and its blocks are free before the client has read it; what waits is coalesced."""
    tokens = 600
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16 * 1024)]
    async with stack(ENDLESS) as deployed, open_channel(deployed.address, narrow) as channel:
        client: Any = inference_pb2_grpc.InferenceServiceStub(channel)
        call = client.StreamGenerate(
            text_request(
                stop={"max_tokens": tokens},
                output={"return_token_ids": True},
                options={"request_id": "r" * 128},
            )
        )
        chunks = [await call.read()]
        await until(lambda: deployed.held_blocks == 0, seconds=20)
        chunks += await collect(call)
    assert len(chunks) < tokens / 2
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert "".join(chunk.text for chunk in chunks) == "x" * tokens
    assert sum(len(chunk.token_ids) for chunk in chunks) == tokens == chunks[-1].usage.completion_tokens


async def test_a_stop_string_ends_the_work_though_nobody_reads() -> None:
    async with stack(saying(ids_of(b"ab!"), then=ids_of(b"x")[0])) as deployed:
        call = deployed.client.StreamGenerate(text_request(stop={"stop": ["!"]}))
        await until(lambda: bool(deployed.runner.plans))
        await until(lambda: deployed.running == 0)
        assert "".join([chunk.text for chunk in await collect(call)]) == "ab"
