"""A Generation that says what a test told it to, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from opentelemetry.context import Context

from headrace.v1.generation_pb2 import FINISH_REASON_STOP, Usage
from headrace.v1.inference_pb2 import Choice, Chunk, GenerateRequest, GenerateResponse, Model
from services.gateway.caller import Caller
from services.gateway.generation import Generation
from services.gateway.readiness import Readiness

MODEL, VERSION = "tiny", "0123456789ab"
USAGE = Usage(prompt_tokens=7, cached_tokens_l1=2, cached_tokens_l2=3, completion_tokens=4)


@dataclass
class Script:
    """What the fake answers."""

    texts: Sequence[str] = ("Hel", "lo")
    finish: int = FINISH_REASON_STOP
    error: Exception | None = None
    error_after: int = 0
    """How many chunks come before the error."""
    hold_after: int | None = None
    """Waits for `release` after this many chunks."""
    release: asyncio.Event = field(default_factory=asyncio.Event)


class FakeGeneration(Generation):
    """Plays its script for every request; `running` counts the ones that have not ended."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.requests: list[GenerateRequest] = []
        self.callers: list[Caller] = []
        self.parents: list[Context] = []
        self.timeouts: list[float | None] = []
        self.running = 0
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def stream(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        self.callers.append(caller)
        self.parents.append(parent)
        self.timeouts.append(timeout_seconds)
        self.running += 1
        self.started.set()
        try:
            for sequence, text in enumerate(self.script.texts):
                await self._maybe_stop(sequence)
                yield self._chunk(request, sequence, text)
            await self._maybe_stop(len(self.script.texts))
            last = self._chunk(request, len(self.script.texts), "")
            last.finish_reason = self.script.finish
            last.usage.CopyFrom(USAGE)
            yield last
        finally:
            self.running -= 1
            self.ended.set()

    async def generate(
        self, request: GenerateRequest, caller: Caller, *, timeout_seconds: float | None, parent: Context
    ) -> GenerateResponse:
        chunks = [chunk async for chunk in self.stream(request, caller, timeout_seconds=timeout_seconds, parent=parent)]
        choice = Choice(
            text="".join(chunk.text for chunk in chunks),
            finish_reason=chunks[-1].finish_reason,
            token_ids=[token_id for chunk in chunks for token_id in chunk.token_ids],
        )
        request_id = request.options.request_id
        return GenerateResponse(
            request_id=request_id, model=MODEL, model_version=VERSION, choices=[choice], usage=USAGE
        )

    async def list_models(self) -> list[Model]:
        return [
            Model(name=MODEL, version=VERSION, context_length=128, is_default=True),
            Model(name="org/other", version="1", context_length=64),
        ]

    async def _maybe_stop(self, chunks: int) -> None:
        if self.script.hold_after == chunks:
            await self.script.release.wait()
        if self.script.error is not None and self.script.error_after == chunks:
            raise self.script.error

    def _chunk(self, request: GenerateRequest, sequence: int, text: str) -> Chunk:
        asked = request.output.return_token_ids
        return Chunk(
            request_id=request.options.request_id,
            sequence=sequence,
            text=text,
            token_ids=[sequence + 10] if asked else [],
            model=MODEL,
            model_version=VERSION,
        )


def ready() -> Readiness:
    """A gateway with a runner."""
    return Readiness(lambda: None)
