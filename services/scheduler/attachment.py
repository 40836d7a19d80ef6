"""One runner's Attach stream: hello, then plans out and results in."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import structlog

from headrace.v1 import step_pb2
from services.common.errors import InvalidRequest, Unavailable
from services.common.stream_writing import WritingContext
from services.scheduler.batch import BatchPlanner, BatchRules
from services.scheduler.loop import LoopSurroundings, StepLoop
from services.scheduler.messages import identity_from, outcome_from, plan_message, report_from
from services.scheduler.runner_identity import RunnerIdentity
from services.scheduler.runner_session import RunnerSession
from services.scheduler.service_parts import ServiceParts
from services.scheduler.settle import ProtocolViolation
from services.scheduler.step_plan import Plan

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


class Attachment:
    """Joins a stream to a session for as long as both live."""

    def __init__(self, parts: ServiceParts, scheduler_id: str, context: Context) -> None:
        self._parts = parts
        self._scheduler_id = scheduler_id
        # A write to a runner that is gone is a cancellation, not an error of ours.
        self._context = WritingContext(context, None)

    async def serve(self) -> None:
        """Runs the runner's loop; whatever ends it, its requests go on elsewhere."""
        parts = self._parts
        first = await self._context.read()
        session = parts.fleet.attach(_checked_identity(first), time.monotonic())
        parts.admission.recheck(time.monotonic())
        reader: asyncio.Task[None] | None = None
        cause = "its stream ended"
        try:
            await self._greet(session)
            reader = asyncio.create_task(self._read(session))
            await parts.second_level.look_up_waiting(parts.queue, session)
            await self._loop(session).run()
            cause = session.close_cause or cause
        except ProtocolViolation as error:
            cause = f"it broke the protocol: {error}"
            raise InvalidRequest("result", str(error)) from error
        finally:
            if reader is not None:
                reader.cancel()
            if not session.is_draining:
                parts.metrics.note_runner_lost()
            parts.second_level.abandon(session)
            parts.fleet.detach(session, cause, time.monotonic())
        raise Unavailable(f"this attachment is over: {cause}; attach again", retry_after_seconds=0.1)

    async def _greet(self, session: RunnerSession) -> None:
        milliseconds = int(self._parts.config.heartbeat_seconds * 1000)
        attached = step_pb2.Attached(
            epoch=session.epoch, scheduler_id=self._scheduler_id, heartbeat_milliseconds=milliseconds
        )
        await self._context.write(step_pb2.AttachResponse(attached=attached))

    def _loop(self, session: RunnerSession) -> StepLoop:
        parts = self._parts

        async def send(plan: Plan) -> None:
            await self._context.write(plan_message(plan, session.epoch))

        rules = BatchRules(parts.config.load_seconds, parts.fleet.is_elsewhere, parts.fleet.wake_others)
        planner = BatchPlanner(session, parts.queue, rules)
        return StepLoop(session, planner, send, LoopSurroundings(parts.second_level, parts.metrics))

    async def _read(self, session: RunnerSession) -> None:
        """Hands over what the runner says; a message of another epoch is dropped and counted."""
        try:
            while True:
                message = await self._context.read()
                if message is grpc.aio.EOF:
                    session.close("it ended its stream")
                    return
                self._hear(session, message)
        finally:
            session.close("its stream broke")

    def _hear(self, session: RunnerSession, message: step_pb2.AttachRequest) -> None:
        kind = message.WhichOneof("message")
        if kind not in ("result", "transfer", "heartbeat", "draining"):
            session.close(f"it sent {kind or 'an empty message'} where none belongs")
            return
        body = getattr(message, kind)
        if body.epoch != session.epoch or session.is_closed:
            self._parts.metrics.note_stale()
            return
        session.last_heard = time.monotonic()
        if kind == "result":
            session.hear(outcome_from(message.result))
        elif kind == "transfer":
            session.hear(report_from(message.transfer))
        elif kind == "draining":
            self._parts.fleet.drain(session)
        elif message.heartbeat.device.HasField("utilization"):
            session.device_utilization = message.heartbeat.device.utilization


def _checked_identity(first: Any) -> RunnerIdentity:
    if first is grpc.aio.EOF or first.WhichOneof("message") != "hello":
        raise InvalidRequest("hello", "the first message of an Attach stream must be hello")
    identity = identity_from(first.hello)
    for name, value in (
        ("runner_id", identity.runner_id),
        ("model.name", identity.model.name),
        ("model.weights_digest", identity.model.weights_digest),
        ("model.context_length", identity.model.context_length),
        ("model.vocabulary_size", identity.model.vocabulary_size),
        ("kv.block_tokens", identity.kv.block_tokens),
        ("kv.block_count", identity.kv.block_count),
        ("step_tokens", identity.step_tokens),
        ("sequence_slots", identity.sequence_slots),
    ):
        if not value:
            raise InvalidRequest(f"hello.{name}", "is empty or 0")
    return identity
