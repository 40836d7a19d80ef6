"""A gateway's side of Submit, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from headrace.v1 import generation_pb2
from headrace.v1 import scheduler_pb2 as pb
from headrace.v1.scheduler_pb2_grpc import SchedulerServiceStub
from services.common.grpc_options import open_channel


@dataclass
class Answer:
    """What came back so far."""

    token_ids: list[int] = field(default_factory=list)
    messages: list[pb.SubmitResponse] = field(default_factory=list)

    @property
    def last(self) -> pb.SubmitResponse:
        """The message with usage and finish reason."""
        return self.messages[-1]


def start_message(prompt: list[int], max_tokens: int, **fields: Any) -> pb.SubmitRequest:
    """Builds a submission that ignores the end token unless told otherwise."""
    values: dict[str, Any] = {"request_id": "r", "choices": 1, "priority": 4, "ignore_eos": True, **fields}
    return pb.SubmitRequest(start=pb.SubmitStart(prompt_token_ids=prompt, max_tokens=max_tokens, **values))


class Gateway:
    """Submits over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: Any = SchedulerServiceStub(channel)

    async def open(self, prompt: list[int], max_tokens: int, timeout: float = 20.0, **fields: Any) -> Any:
        """Starts a request and returns its call."""
        call = self.stub.Submit(timeout=timeout)
        await call.write(start_message(prompt, max_tokens, **fields))
        return call

    async def read(self, call: Any, tokens: int | None = None) -> Answer:
        """Reads to the end, or until so many tokens have come."""
        answer = Answer()
        while tokens is None or len(answer.token_ids) < tokens:
            message = await call.read()
            if message is grpc.aio.EOF:
                break
            answer.messages.append(message)
            answer.token_ids.extend(message.token_ids)
        return answer

    async def ask(self, prompt: list[int], max_tokens: int, **fields: Any) -> Answer:
        """Submits and reads the whole answer."""
        return await self.read(await self.open(prompt, max_tokens, **fields))


@asynccontextmanager
async def gateway(address: str) -> AsyncIterator[Gateway]:
    """Opens a channel for a while."""
    async with open_channel(address) as channel:
        yield Gateway(channel)


LENGTH = generation_pb2.FINISH_REASON_LENGTH
STOP = generation_pb2.FINISH_REASON_STOP
