"""Lets a request in, or says at once why it can never run here; and takes it out again."""

import asyncio
import itertools
from collections.abc import Callable

from services.common.errors import (
    ContextLengthExceeded,
    FailedPrecondition,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.scheduler.config import SchedulerConfig
from services.scheduler.ending import end_request
from services.scheduler.fleet import Fleet, no_runner
from services.scheduler.placement import choose, is_model_match
from services.scheduler.request import FinishReason, Request, RequestSpec
from services.scheduler.runner_identity import RunnerIdentity
from services.scheduler.stage_clock import EndedStage, Stage, StageClock
from services.scheduler.waiting_queue import WaitingQueue

LOWEST_PRIORITY = 9


class TokenizerMismatch(FailedPrecondition):
    """The gateway and every runner of the model disagree about what a token id means."""

    reason = "TOKENIZER_MISMATCH"


def check_fields(spec: RequestSpec) -> None:
    """Refuses what no runner could make sense of."""
    if not spec.prompt:
        raise InvalidRequest("prompt_token_ids", "is empty; send at least one token")
    if spec.max_tokens < 1:
        raise InvalidRequest("max_tokens", f"is {spec.max_tokens}; use 1 or more")
    if spec.min_tokens > spec.max_tokens:
        raise InvalidRequest("min_tokens", f"is {spec.min_tokens}, more than max_tokens {spec.max_tokens}")
    if spec.choices != 1:
        raise InvalidRequest("choices", f"is {spec.choices}; this version generates 1 choice a request")
    if spec.priority > LOWEST_PRIORITY:
        raise InvalidRequest("priority", f"is {spec.priority}; use 0 (most urgent) to {LOWEST_PRIORITY}")


def check_runners(spec: RequestSpec, identities: list[RunnerIdentity]) -> None:
    """Refuses what none of these runners can ever serve."""
    candidates = [identity for identity in identities if is_model_match(spec, identity)]
    if not candidates:
        served = sorted({identity.model.name for identity in identities})
        version = f" version {spec.model_version}" if spec.model_version else ""
        raise ModelNotFound(
            f"no runner serves model {spec.model!r}{version}; served now: {', '.join(served)}",
            resource=("model", spec.model),
        )
    if spec.tokenizer_digest:
        candidates = [item for item in candidates if item.model.tokenizer_digest == spec.tokenizer_digest]
        if not candidates:
            raise TokenizerMismatch(
                "the gateway's tokenizer is not the one that the runners hold; start both with the same model folder"
            )
    _check_vocabulary(spec, max(identity.model.vocabulary_size for identity in candidates))
    _check_length(spec, [item for item in candidates if spec.highest_token_id < item.model.vocabulary_size])


def _check_vocabulary(spec: RequestSpec, vocabulary_size: int) -> None:
    if spec.highest_token_id < vocabulary_size:
        return
    for field, ids in (("prompt_token_ids", spec.prompt), ("stop_token_ids", sorted(spec.stop_token_ids))):
        for position, token_id in enumerate(ids):
            if token_id >= vocabulary_size:
                raise InvalidRequest(
                    field,
                    f"token id {token_id} at position {position} is outside the vocabulary of {vocabulary_size}",
                )


def _check_length(spec: RequestSpec, candidates: list[RunnerIdentity]) -> None:
    largest = max(candidates, key=lambda identity: identity.request_tokens_limit)
    limit = largest.request_tokens_limit
    if spec.total_tokens <= limit:
        return
    prompt = len(spec.prompt)
    field = "prompt_token_ids" if prompt >= limit else "max_tokens"
    raise ContextLengthExceeded(
        field,
        f"{prompt} prompt tokens plus {spec.max_tokens} output tokens are {spec.total_tokens}, more than the {limit} "
        f"that one request can have (context {largest.model.context_length}, KV cache {largest.pool_tokens}); "
        f"shorten the prompt or lower max_tokens",
        metadata={
            "limit": str(limit),
            "prompt_tokens": str(prompt),
            "max_tokens": str(spec.max_tokens),
        },
    )


class Admission:
    """The door: bounded, and the only way in or out for a gateway."""

    def __init__(
        self, config: SchedulerConfig, queue: WaitingQueue, fleet: Fleet, on_end: Callable[[Request], None]
    ) -> None:
        self._queue = queue
        self._fleet = fleet
        self._config = config
        self._on_end = on_end
        self._arrivals = itertools.count()
        self._open: set[int] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    @property
    def open_requests(self) -> int:
        """Requests that were let in and are not done."""
        return len(self._open)

    def close(self) -> None:
        """Lets nobody in any more; who is in finishes."""
        self._is_closed = True

    def admit(self, spec: RequestSpec, on_stage_end: Callable[[EndedStage], None], now: float) -> Request:
        """Checks a request and gives it its place in the order of arrival; raises the refusal."""
        if self._is_closed:
            raise Unavailable("this scheduler is shutting down; try another one", retry_after_seconds=1.0)
        check_fields(spec)
        identities = self._fleet.identities(now)
        if identities:
            check_runners(spec, identities)
        else:
            since = self._fleet.absent_since(spec)
            if since is not None and now - since >= self._config.runner_wait_seconds:
                raise no_runner(spec, now - since)
        if len(self._queue) >= self._config.queue_limit:
            raise Overloaded(f"{len(self._queue)} requests wait already; try again later", retry_after_seconds=1.0)
        clock = StageClock(now, on_stage_end)
        request = Request(spec, next(self._arrivals), clock, list(spec.prompt))
        self._open.add(request.arrival)
        self._idle.clear()
        return request

    def enqueue(self, request: Request, now: float) -> None:
        """Puts an admitted request into the queue; one that must not wait is refused where it would have to."""
        if request.is_done:
            return
        if request.spec.do_not_queue and (len(self._queue) > 0 or choose(request, self._fleet.sessions) is None):
            busy = Overloaded("no runner is free and the request must not wait (do_not_queue)", retry_after_seconds=1.0)
            self.end(request, FinishReason.ERROR, now, busy)
            raise busy
        request.clock.enter(Stage.QUEUE, now)
        self._queue.add(request)
        self._fleet.wake()

    def recheck(self, now: float) -> None:
        """Refuses waiting requests that were let in before any runner was known, and that none can serve."""
        identities = self._fleet.identities(now)
        for request in list(self._queue):
            try:
                check_runners(request.spec, identities)
            except ServiceError as error:
                self.end(request, FinishReason.ERROR, now, error)

    def end(self, request: Request, reason: FinishReason, now: float, error: ServiceError | None = None) -> None:
        """Ends a request wherever it is; harmless when it has ended."""
        self._queue.remove(request)
        if end_request(request, reason, now, error):
            self._on_end(request)
        self._fleet.wake()

    def forget(self, request: Request) -> None:
        """Drops the books of a request whose stream is closed."""
        self._open.discard(request.arrival)
        if not self._open:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Returns when every stream is closed."""
        await self._idle.wait()
