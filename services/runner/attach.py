"""The runner's end of the Attach stream: dials its scheduler, for ever, and lets it command the engine."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from headrace.v1 import scheduler_pb2_grpc, step_pb2
from services.common.cluster_auth import cluster_metadata
from services.common.grpc_options import open_channel
from services.runner.device import Device
from services.runner.l2.orders import TransferReport
from services.runner.metrics import RunnerMetrics
from services.runner.plan_executor import Attachment, PlanExecutor
from services.runner.sequence_spans import SequenceSpans
from services.runner.step import PlanError, StepOutcome
from services.runner.step_messages import (
    Plan,
    draining_to_proto,
    heartbeat_to_proto,
    plan_from_proto,
    result_to_proto,
    transfer_to_proto,
)

log = structlog.get_logger()

FIRST_BACKOFF_SECONDS = 0.1
LAST_BACKOFF_SECONDS = 2.0
HELLO_TIMEOUT_SECONDS = 10.0


class _Ended(Exception):
    """The attachment is over; the message says why."""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """Whom to dial, and how to introduce oneself."""

    scheduler: str
    cluster_token: str | None
    hello: step_pb2.AttachRequest
    step_span_every: int


class SchedulerLink:
    """Keeps the runner attached; everything that an attachment brought is forgotten with it."""

    def __init__(self, config: LinkConfig, executor: PlanExecutor, device: Device, metrics: RunnerMetrics) -> None:
        self._config = config
        self._executor = executor
        self._device = device
        self._metrics = metrics
        self._session: _Session | None = None
        self._is_draining = False

    def drain(self) -> None:
        """Asks the scheduler for nothing new; when the attachment ends, there is no other one."""
        self._is_draining = True
        if self._session is not None:
            self._session.drain()

    async def run(self, on_change: Callable[[bool], Awaitable[None]]) -> None:
        """Attaches again and again until it is drained or cancelled; on_change hears whether a scheduler uses it."""
        backoff = FIRST_BACKOFF_SECONDS
        last_cause = ""
        async with open_channel(self._config.scheduler) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            while not self._is_draining:
                self._session = session = _Session(stub, self._config, self._executor, self._device, self._metrics)
                try:
                    cause = await session.run(on_change)
                finally:
                    await on_change(False)
                if session.was_attached:
                    backoff = FIRST_BACKOFF_SECONDS
                    log.warning("detached", scheduler=self._config.scheduler, cause=cause)
                elif cause != last_cause:
                    log.info("waiting for the scheduler", scheduler=self._config.scheduler, cause=cause)
                last_cause = cause
                await asyncio.sleep(backoff * random.uniform(0.5, 1))  # noqa: S311 - spreads runners, hides nothing
                backoff = min(backoff * 2, LAST_BACKOFF_SECONDS)


class _Session:
    """One call of Attach."""

    def __init__(
        self,
        stub: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
        config: LinkConfig,
        executor: PlanExecutor,
        device: Device,
        metrics: RunnerMetrics,
    ) -> None:
        self._call: Any = stub.Attach(metadata=tuple(cluster_metadata(config.cluster_token).items()))
        self._config = config
        self._executor = executor
        self._device = device
        self._metrics = metrics
        self._spans = SequenceSpans(config.step_span_every)
        self._outgoing: asyncio.Queue[step_pb2.AttachRequest] = asyncio.Queue()
        self._steps: asyncio.Queue[tuple[Plan, asyncio.Future[StepOutcome | None]]] = asyncio.Queue()
        self._epoch: int | None = None
        self._is_draining = False
        self.was_attached = False

    def drain(self) -> None:
        """Says that nothing new may come, now or as soon as there is somebody to say it to."""
        self._is_draining = True
        if self._epoch is not None:
            self._outgoing.put_nowait(draining_to_proto(self._epoch))

    async def run(self, on_change: Callable[[bool], Awaitable[None]]) -> str:
        """Says hello and works until the stream ends; returns why it did."""
        attachment: Attachment | None = None
        cause = "the runner shuts down"
        try:
            attached = await self._say_hello()
            loop = asyncio.get_running_loop()

            def report(transfer: TransferReport) -> None:
                message = transfer_to_proto(transfer, attached.epoch)
                loop.call_soon_threadsafe(self._outgoing.put_nowait, message)

            attachment = Attachment(attached.epoch, report)
            self.was_attached = True
            self._epoch = attached.epoch
            if self._is_draining:
                self.drain()
            self._metrics.attachments.inc()
            self._metrics.attached.set(1)
            log.info("attached", scheduler_id=attached.scheduler_id, epoch=attached.epoch)
            await on_change(True)
            cause = await self._work(attachment, attached.heartbeat_milliseconds / 1000)
        except _Ended as ended:
            cause = str(ended)
        finally:
            self._call.cancel()
            self._metrics.attached.set(0)
            self._spans.close(cause)
            if attachment is not None:
                attachment.close()
                await on_change(False)
                await self._executor.forget()
        return cause

    async def _say_hello(self) -> step_pb2.Attached:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
                await self._call.write(self._config.hello)
                answer = await self._call.read()
        except TimeoutError:
            raise _Ended(f"no answer to the hello within {HELLO_TIMEOUT_SECONDS:g} s") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise _Ended(await self._status(error)) from error
        if answer is grpc.aio.EOF or not answer.HasField("attached"):
            raise _Ended(await self._status(None))
        attached: step_pb2.Attached = answer.attached
        return attached

    async def _work(self, attachment: Attachment, heartbeat_seconds: float) -> str:
        """Runs the four directions of the stream until the first of them ends."""
        duties = (
            self._read_plans(attachment),
            self._answer_plans(attachment.epoch),
            self._beat(attachment.epoch, heartbeat_seconds),
            self._write(),
        )
        cause = "the stream ended"
        try:
            async with asyncio.TaskGroup() as group:
                for duty in duties:
                    group.create_task(duty)
        except* (_Ended, PlanError) as errors:
            cause = str(errors.exceptions[0])
        return cause

    async def _read_plans(self, attachment: Attachment) -> None:
        while True:
            try:
                message = await self._call.read()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                raise _Ended(await self._status(error)) from error
            if message is grpc.aio.EOF:
                raise _Ended(await self._status(None))
            if not message.HasField("plan") or message.plan.epoch != attachment.epoch:
                log.warning("a message of another epoch was dropped", epoch=attachment.epoch)
                continue
            plan = plan_from_proto(message.plan)
            self._steps.put_nowait((plan, self._executor.submit(plan, attachment)))

    async def _answer_plans(self, epoch: int) -> None:
        while True:
            plan, future = await self._steps.get()
            outcome = await future
            if outcome is None:
                return
            reading = self._device.read()
            self._outgoing.put_nowait(result_to_proto(outcome, epoch, reading))
            self._metrics.note_step(plan.order, outcome)
            self._spans.note_step(plan.order, outcome, reading)
            log.debug(
                "step",
                stage="STEP",
                step=outcome.step,
                batch_size=outcome.batch_sequences,
                tokens=outcome.batch_tokens,
                gpu_util=reading.utilization,
                duration_ms=round(outcome.times.forward_nanoseconds / 1e6, 3),
            )

    async def _beat(self, epoch: int, interval_seconds: float) -> None:
        while True:
            self._outgoing.put_nowait(heartbeat_to_proto(epoch, self._device.read()))
            # Twice as often as asked: a beat that is late by a busy moment is still in time.
            await asyncio.sleep(interval_seconds / 2)

    async def _write(self) -> None:
        while True:
            message = await self._outgoing.get()
            try:
                await self._call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                raise _Ended(await self._status(error)) from error

    async def _status(self, error: Exception | None) -> str:
        """Returns the scheduler's reason for ending the stream."""
        if isinstance(error, grpc.aio.AioRpcError):
            return f"{error.code().name}: {error.details()}"
        code = await self._call.code()
        return f"{grpc.StatusCode(code).name}: {await self._call.details()}"
