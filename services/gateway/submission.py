"""Feeds an answer from its Submit stream as fast as tokens come, and hands it out as fast as it is read."""

import asyncio
import time
from collections.abc import AsyncGenerator

from headrace.v1 import generation_pb2
from headrace.v1.scheduler_pb2 import SubmitResponse
from services.common.errors import Cancelled, DeadlineExceeded, GenerationFailed, ServiceError, Unavailable
from services.gateway.answer import Answer, Finish, Piece
from services.gateway.open_requests import OpenRequest
from services.gateway.request_record import RequestRecord
from services.gateway.scheduler_client import SubmitCall

# How long the scheduler may take to count up a request that a stop string has ended.
_LAST_WORD_SECONDS = 2.0

_FINISHES = {generation_pb2.FINISH_REASON_STOP: Finish.STOP, generation_pb2.FINISH_REASON_LENGTH: Finish.LENGTH}


class Submission:
    """One request between the scheduler and its client.

    Reading from the scheduler never waits for the client, so that stop strings end the work at once and a slow reader
    holds no blocks. What gathers meanwhile is bounded by the request's own max_tokens.
    """

    def __init__(self, call: SubmitCall, answer: Answer, record: RequestRecord) -> None:
        self._call = call
        self._answer = answer
        self._record = record
        self._news = asyncio.Event()
        self.timing = generation_pb2.Timing()
        self.model = ""
        self.model_version = ""

    async def pieces(self, request: OpenRequest) -> AsyncGenerator[Piece, None]:
        """Yields the answer piece by piece; closing the iterator ends the reading."""
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _reading: self._news.set())
        request.on_cancel(reading.cancel)
        is_complete = False
        try:
            while not is_complete:
                await self._news.wait()
                self._news.clear()
                is_read = reading.done()
                piece = self._answer.take()
                if piece is not None:
                    is_complete = piece.finish is not None
                    yield piece
                elif is_read:
                    request.raise_if_cancelled()
                    reading.result()
                    raise Unavailable("the scheduler ended the request without a reason; try again")
                if is_read:
                    self._news.set()
        finally:
            if is_complete:
                # The scheduler closes its side itself, so that a finished request does not look like a cancelled one.
                await asyncio.wait([reading], timeout=_LAST_WORD_SECONDS)
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # asked for, so that asyncio does not report it as forgotten

    async def _read(self) -> None:
        finish: Finish | None = None
        while finish is None:
            message = await self._call.read()
            if message is None:
                return
            finish = await self._take_in(message)
        # Counted here and not there: a token that was made after the one that matched was never part of the answer.
        self._record.usage.completion_tokens = self._answer.completion_tokens
        self._answer.finish(finish)
        self._news.set()
        await self._read_to_the_end()

    async def _take_in(self, message: SubmitResponse) -> Finish | None:
        self._note(message)
        if message.token_ids:
            began = time.monotonic()
            self._answer.feed(message.token_ids)
            self._record.note_tokens(time.monotonic() - began)
            self._record.usage.completion_tokens = self._answer.completion_tokens
            self._news.set()
        if self._answer.is_stopped:
            if not message.HasField("finish_reason"):
                await self._stop()
            return Finish.STOP
        return _finish_of(message)

    async def _stop(self) -> None:
        """Ends the work at the scheduler; the answer is complete already, so its account is a courtesy."""
        try:
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await self._call.stop(choice=0)
                while (message := await self._call.read()) is not None:
                    self._note(message)
                    if message.HasField("finish_reason"):
                        return
        except (ServiceError, TimeoutError):
            return

    async def _read_to_the_end(self) -> None:
        try:
            while await self._call.read() is not None:
                pass
        except ServiceError:
            return

    def _note(self, message: SubmitResponse) -> None:
        if message.model:
            self.model, self.model_version = message.model, message.model_version
        if message.HasField("usage"):
            self._record.usage.CopyFrom(message.usage)
        if message.HasField("timing"):
            self.timing.CopyFrom(message.timing)


def _finish_of(message: SubmitResponse) -> Finish | None:
    if not message.HasField("finish_reason"):
        return None
    if message.finish_reason in _FINISHES:
        return _FINISHES[message.finish_reason]
    if message.finish_reason == generation_pb2.FINISH_REASON_DEADLINE:
        raise DeadlineExceeded("the call's time limit has passed; allow more time, or ask for fewer tokens")
    if message.finish_reason == generation_pb2.FINISH_REASON_CANCELLED:
        raise Cancelled("the request was cancelled")
    name = generation_pb2.FinishReason.Name(message.finish_reason)
    raise GenerationFailed(f"the model could not go on with this request ({name}); the scheduler's log has the cause")
