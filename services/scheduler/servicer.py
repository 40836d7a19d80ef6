"""SchedulerService: gateways submit, runners attach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from opentelemetry import context as otel_context

from headrace.v1 import scheduler_pb2, step_pb2
from headrace.v1.scheduler_pb2_grpc import SchedulerServiceServicer
from services.common.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    ServiceError,
    errors_as_status,
)
from services.common.tracing import traceparent_of
from services.scheduler.attachment import Attachment
from services.scheduler.messages import add_summary, away_message, load_message, news_message, spec_from
from services.scheduler.request import FinishReason, Request
from services.scheduler.service_parts import ServiceParts
from services.scheduler.spans import StageRecorder

Context = grpc.aio.ServicerContext[Any, Any]

# The caller's clock started a little earlier than ours: a call that is dropped so shortly before its time is over was
# dropped because of it.
LATE_SECONDS = 0.1


class SchedulerServicer(SchedulerServiceServicer):
    """Translates between calls and the scheduler's own objects."""

    def __init__(self, parts: ServiceParts, scheduler_id: str) -> None:
        self._parts = parts
        self._scheduler_id = scheduler_id

    async def Submit(
        self, request_iterator: AsyncIterator[scheduler_pb2.SubmitRequest], context: Context
    ) -> AsyncIterator[scheduler_pb2.SubmitResponse]:
        """Serves one request; its stream's end is the request's end."""
        async with errors_as_status(context):
            spec = spec_from(await _first_message(request_iterator), traceparent_of(otel_context.get_current()))
            recorder = StageRecorder(spec.request_id, spec.traceparent)
            admission = self._parts.admission
            try:
                request = admission.admit(spec, recorder, time.monotonic())
            except ServiceError as error:
                self._parts.metrics.note_refused(error.reason)
                raise
            watcher = asyncio.create_task(self._watch(request, request_iterator, context.time_remaining()))
            try:
                await self._parts.second_level.look_up(request, self._parts.fleet.sessions)
                admission.enqueue(request, time.monotonic())
                async for message in _news(request):
                    yield message
            finally:
                watcher.cancel()
                self._end_abandoned(request, context)
                admission.forget(request)
                recorder.log_done(request, time.monotonic())

    async def _watch(self, request: Request, requests: AsyncIterator[Any], seconds: float | None) -> None:
        """Ends the request when its gateway says so, or when its time is over."""
        try:
            async with asyncio.timeout(seconds):
                async for message in requests:
                    if message.WhichOneof("event") == "stop":
                        self._parts.admission.end(request, FinishReason.STOP, time.monotonic())
                # The gateway has said all it will; the time limit stays.
                await asyncio.Event().wait()
        except TimeoutError:
            self._parts.admission.end(request, FinishReason.DEADLINE, time.monotonic())

    def _end_abandoned(self, request: Request, context: Context) -> None:
        remaining = context.time_remaining()
        is_late = remaining is not None and remaining < LATE_SECONDS
        reason = FinishReason.DEADLINE if is_late else FinishReason.CANCELLED
        self._parts.admission.end(request, reason, time.monotonic())

    async def Attach(self, request_iterator: AsyncIterator[step_pb2.AttachRequest], context: Context) -> None:  # type: ignore[override]
        """Serves one runner until its stream ends; reads and writes directly, which costs less than two iterators."""
        async with errors_as_status(context):
            await Attachment(self._parts, self._scheduler_id, context).serve()

    async def GetLoads(
        self, request: scheduler_pb2.GetLoadsRequest, context: Context
    ) -> scheduler_pb2.GetLoadsResponse:
        """Reports runners and queue."""
        fleet = self._parts.fleet
        away = [away_message(identity) for identity in fleet.away(time.monotonic())]
        return scheduler_pb2.GetLoadsResponse(
            runners=[*(load_message(session) for session in fleet.sessions), *away],
            queued_requests=len(self._parts.queue),
            scheduler_id=self._scheduler_id,
        )


async def _first_message(requests: AsyncIterator[scheduler_pb2.SubmitRequest]) -> scheduler_pb2.SubmitStart:
    async for message in requests:
        if message.WhichOneof("event") == "start":
            return message.start
        break
    raise InvalidRequest("start", "the first message of a Submit stream must be start")


async def _news(request: Request) -> AsyncIterator[scheduler_pb2.SubmitResponse]:
    """Yields one message per step's worth of news, or more where the reader is slow; raises the request's error."""
    is_first = True
    while True:
        token_ids, is_last = await request.outbox.take()
        has_summary = is_last and request.finish in (FinishReason.STOP, FinishReason.LENGTH)
        if token_ids or has_summary:
            message = news_message(token_ids, request if is_first else None)
            is_first = False
            if has_summary:
                add_summary(message, request, time.monotonic())
            yield message
        if has_summary:
            return
        if is_last:
            raise _error_of(request)


def _error_of(request: Request) -> ServiceError:
    if request.error is not None:
        return request.error
    if request.finish is FinishReason.DEADLINE:
        return DeadlineExceeded(f"the request's time was over after {request.output_tokens} output tokens")
    return Cancelled("the caller ended the request")
