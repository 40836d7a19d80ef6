"""A scheduler's side of Attach whose plans a test writes by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from headrace.v1 import generation_pb2, scheduler_pb2_grpc, step_pb2
from services.common.grpc_options import SERVER_OPTIONS

WAIT_SECONDS = 60.0


class Stream:
    """One attachment as the scheduler sees it."""

    def __init__(self, hello: step_pb2.RunnerHello, epoch: int, context: Any) -> None:
        self.hello = hello
        self.epoch = epoch
        self.metadata = dict(context.invocation_metadata())
        self.results: asyncio.Queue[step_pb2.StepResult] = asyncio.Queue()
        self.transfers: asyncio.Queue[step_pb2.TransferResult] = asyncio.Queue()
        self.heartbeats: asyncio.Queue[step_pb2.Heartbeat] = asyncio.Queue()
        self.drained: asyncio.Queue[step_pb2.Draining] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._context = context
        self._hang_up = asyncio.Event()

    async def plan(self, step: int, epoch: int | None = None, **fields: Any) -> None:
        """Sends a plan, of this epoch unless told otherwise."""
        plan = step_pb2.StepPlan(epoch=self.epoch if epoch is None else epoch, step=step, **fields)
        await self._context.write(step_pb2.AttachResponse(plan=plan))

    async def result(self) -> step_pb2.StepResult:
        """Returns the next result."""
        return await asyncio.wait_for(self.results.get(), WAIT_SECONDS)

    def hang_up(self) -> None:
        """Ends the stream from the scheduler's side."""
        self._hang_up.set()

    async def serve(self) -> None:
        """Sorts what the runner says until somebody hangs up."""
        reading = asyncio.create_task(self._read())
        hanging_up = asyncio.create_task(self._hang_up.wait())
        await asyncio.wait({reading, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        hanging_up.cancel()
        self.ended.set()

    async def _read(self) -> None:
        while True:
            message = await self._context.read()
            if message is grpc.aio.EOF:
                return
            kind = message.WhichOneof("message")
            queue: asyncio.Queue[Any] = {
                "result": self.results,
                "transfer": self.transfers,
                "heartbeat": self.heartbeats,
                "draining": self.drained,
            }[kind]
            queue.put_nowait(getattr(message, kind))


class ScriptedScheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Admits every runner, each time with the next epoch."""

    def __init__(self, first_epoch: int) -> None:
        self._epoch = first_epoch
        self._streams: asyncio.Queue[Stream] = asyncio.Queue()

    async def Attach(self, _requests: Any, context: Any) -> None:
        """Greets the runner and lets the test have the stream."""
        hello = (await context.read()).hello
        stream = Stream(hello, self._epoch, context)
        self._epoch += 1
        attached = step_pb2.Attached(epoch=stream.epoch, scheduler_id="scripted", heartbeat_milliseconds=100)
        await context.write(step_pb2.AttachResponse(attached=attached))
        self._streams.put_nowait(stream)
        try:
            await stream.serve()
        finally:
            stream.ended.set()

    async def next_stream(self) -> Stream:
        """Waits for the next attachment."""
        return await asyncio.wait_for(self._streams.get(), WAIT_SECONDS)


@asynccontextmanager
async def scripted_scheduler(address: str, first_epoch: int = 1) -> AsyncIterator[ScriptedScheduler]:
    """Serves at an address until the block is left."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    scheduler = ScriptedScheduler(first_epoch)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield scheduler
    finally:
        await server.stop(0)


def greedy_sequence(slot: int, tokens: list[int], blocks: list[int]) -> step_pb2.NewSequence:
    """Returns a sequence that takes the likeliest tokens."""
    return step_pb2.NewSequence(
        slot=slot,
        request_id=f"request-{slot}",
        token_ids=tokens,
        prompt_tokens=len(tokens),
        block_ids=blocks,
        sampling=generation_pb2.SamplingParams(temperature=0.0),
    )


def work(slot: int, tokens: int) -> step_pb2.SequenceWork:
    """Returns a piece of work."""
    return step_pb2.SequenceWork(slot=slot, tokens=tokens)
