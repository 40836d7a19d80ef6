"""A runner process without a model: dials a scheduler, attaches, and answers plans from a script.

    runner = ScriptedRunner("unix:/tmp/s.sock", scripted_hello("runner-0"), counting_script)
    async with runner:
        await runner.attached.wait()
        ...

It reattaches like the real one, until it is closed.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any

import grpc
from scripted_engine import Script, ScriptedEngine, ScriptedStore, counting_script

from headrace.v1 import step_pb2
from headrace.v1.scheduler_pb2_grpc import SchedulerServiceStub
from services.common.grpc_options import open_channel

RETRY_SECONDS = 0.05


def scripted_hello(
    runner_id: str = "runner-0",
    *,
    block_tokens: int = 4,
    block_count: int = 64,
    context_length: int = 256,
    vocabulary_size: int = 1000,
    eos_token_ids: Iterable[int] = (2,),
    step_tokens: int = 64,
    sequence_slots: int = 8,
    has_l2: bool = False,
    model_name: str = "scripted",
    tokenizer_digest: str = "t" * 64,
) -> step_pb2.RunnerHello:
    """Builds the hello of a small runner."""
    return step_pb2.RunnerHello(
        runner_id=runner_id,
        incarnation=f"{runner_id}-1",
        address="127.0.0.1:0",
        model=step_pb2.ModelIdentity(
            name=model_name,
            version="w" * 12,
            architecture="ScriptedForCausalLM",
            weights_digest="w" * 64,
            tokenizer_digest=tokenizer_digest,
            context_length=context_length,
            vocabulary_size=vocabulary_size,
            eos_token_ids=eos_token_ids,
            dtype="float32",
        ),
        kv=step_pb2.KvLayout(
            block_tokens=block_tokens,
            block_count=block_count,
            block_bytes=1024,
            dtype="float32",
            layout="scripted",
            rope="none",
        ),
        step_tokens=step_tokens,
        sequence_slots=sequence_slots,
        has_l2=has_l2,
    )


class ScriptedRunner:
    """Attaches to a scheduler for as long as it is open."""

    def __init__(
        self,
        address: str,
        hello: step_pb2.RunnerHello | None = None,
        script: Script = counting_script,
        store: ScriptedStore | None = None,
    ) -> None:
        self.hello = hello or scripted_hello()
        self.script = script
        self.store = store or ScriptedStore()
        self.engine = self._new_engine()
        self.attached = asyncio.Event()
        """Set while attached."""
        self.is_open = asyncio.Event()
        """Cleared to hold back the answers to plans, as a long step would."""
        self.is_open.set()
        self.epochs: list[int] = []
        self.plans: list[step_pb2.StepPlan] = []
        self.sends_heartbeats = True
        self.heartbeats_sent = 0
        self._address = address
        self._call: Any = None
        # grpc takes one write of a stream at a time.
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def _new_engine(self) -> ScriptedEngine:
        return ScriptedEngine(self.script, self.hello.kv.block_tokens, self.hello.kv.block_count, self.store)

    async def __aenter__(self) -> "ScriptedRunner":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Breaks the stream as a killed process would, and stays away; raises what went wrong in the script."""
        if self._task is None:
            return
        task, self._task = self._task, None
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def break_stream(self) -> None:
        """Loses the connection once; the runner then attaches anew, with an empty pool."""
        self._call.cancel()

    async def say(self, message: step_pb2.AttachRequest) -> None:
        """Sends any message, for tests of what a scheduler makes of it."""
        async with self._writing:
            await self._call.write(message)

    async def _run(self) -> None:
        async with open_channel(self._address) as channel:
            while True:
                try:
                    await self._attach(channel)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    pass
                except asyncio.CancelledError:
                    current = asyncio.current_task()
                    if current is not None and current.cancelling():
                        self._call.cancel()
                        raise
                self.attached.clear()
                await asyncio.sleep(RETRY_SECONDS)

    async def _attach(self, channel: grpc.aio.Channel) -> None:
        stub: Any = SchedulerServiceStub(channel)
        self._call = call = stub.Attach()
        self.engine = self._new_engine()
        await call.write(step_pb2.AttachRequest(hello=self.hello))
        first = await call.read()
        if first is grpc.aio.EOF:
            return
        self.epochs.append(first.attached.epoch)
        self.attached.set()
        heart = asyncio.create_task(self._beat(first.attached))
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self.plans.append(message.plan)
                await self.is_open.wait()
                result, transfers = self.engine.execute(message.plan)
                await self.say(step_pb2.AttachRequest(result=result))
                for transfer in transfers:
                    await self.say(step_pb2.AttachRequest(transfer=transfer))
        finally:
            heart.cancel()

    async def _beat(self, attached: step_pb2.Attached) -> None:
        heartbeat = step_pb2.Heartbeat(epoch=attached.epoch)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await asyncio.sleep(attached.heartbeat_milliseconds / 3000)
                if self.sends_heartbeats:
                    await self.say(step_pb2.AttachRequest(heartbeat=heartbeat))
                    self.heartbeats_sent += 1
