"""Keeps the model directory fresh: about each second, and at once when a request needs to know."""

import asyncio

import structlog

from headrace.v1.scheduler_pb2 import GetLoadsResponse, RunnerLoad
from services.common.errors import ServiceError
from services.gateway.model_directory import AttachedRunner, ModelDirectory
from services.gateway.scheduler_client import SchedulerClient

log = structlog.get_logger()

_ANSWER_SECONDS = 1.0


class DirectoryPoller:
    """Asks the scheduler for its runners."""

    def __init__(self, scheduler: SchedulerClient, directory: ModelDirectory, interval_seconds: float) -> None:
        self._scheduler = scheduler
        self._directory = directory
        self._interval_seconds = interval_seconds
        self._asking: asyncio.Task[None] | None = None
        self.loads = GetLoadsResponse()

    async def run(self) -> None:
        """Polls until it is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._interval_seconds)

    async def refresh(self) -> None:
        """Asks now; callers that come while an answer is on its way share it."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        # Who gives up waiting must not take the answer from the others.
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        before = self._directory.not_ready_reason
        try:
            loads = await self._scheduler.get_loads(_ANSWER_SECONDS)
        except ServiceError as error:
            self.loads = GetLoadsResponse()
            self._directory.forget(error.message)
        else:
            present = [runner for runner in loads.runners if not runner.is_away]
            away = [runner for runner in loads.runners if runner.is_away]
            self._directory.update(map(_attached, present), map(_attached, away))
            self.loads = GetLoadsResponse(
                runners=present, queued_requests=loads.queued_requests, scheduler_id=loads.scheduler_id
            )
        after = self._directory.not_ready_reason
        if before != after:
            log.info("readiness changed", is_ready=after is None, not_ready_reason=after)


def _attached(runner: RunnerLoad) -> AttachedRunner:
    model = runner.model
    limits = [limit for limit in (runner.request_tokens_limit, model.context_length) if limit]
    return AttachedRunner(
        runner_id=runner.runner_id,
        model=model.name,
        version=model.version,
        architecture=model.architecture,
        tokenizer_digest=model.tokenizer_digest,
        context_tokens=min(limits, default=0),
        vocabulary_size=model.vocabulary_size,
        end_token_ids=tuple(model.eos_token_ids),
    )
