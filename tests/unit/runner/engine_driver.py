"""Drives an engine the way a scheduler does, as simply as possible: blocks in scattered order, chunks, batches."""

import random
from dataclasses import dataclass, field, replace

from services.runner.engine import Engine
from services.runner.step import Failure, NewSequence, Sampling, SequenceWork, StepOrder

GREEDY = Sampling(temperature=0.0)


@dataclass
class Job:
    """A request and what came out."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling = GREEDY
    block_ids: list[int] = field(default_factory=list)
    """Blocks that hold a computed prefix already."""
    computed_tokens: int = 0
    output: list[int] = field(default_factory=list)
    failure: Failure | None = None


class EngineDriver:
    """Runs jobs to their end, alone or together."""

    def __init__(self, engine: Engine, seed: int = 0) -> None:
        self.engine = engine
        self._step = 0
        self._free = list(range(engine.pool.block_count))
        random.Random(seed).shuffle(self._free)

    def run(self, jobs: list[Job], step_tokens: int = 512) -> None:
        """Computes every job; a step takes single tokens first, then prompts as far as the budget goes."""
        running = dict(enumerate(jobs))
        new = tuple(self._introduce(slot, job) for slot, job in running.items())
        finished: list[int] = []
        while running:
            work = self._plan(running, step_tokens)
            outcome = self._execute(tuple(finished), new, work)
            new, finished = (), []
            for slot, token in outcome.token_ids.items():
                running[slot].output.append(token)
            for failure in outcome.failures:
                running[failure.slot].failure = failure
            for slot, job in list(running.items()):
                if job.failure or len(job.output) == job.max_tokens:
                    finished.append(slot)
                    del running[slot]
        self._execute(tuple(finished), (), ())

    def _introduce(self, slot: int, job: Job) -> NewSequence:
        return NewSequence(
            slot=slot,
            request_id=f"request-{slot}",
            token_ids=tuple(job.prompt),
            prompt_tokens=len(job.prompt),
            computed_tokens=job.computed_tokens,
            block_ids=tuple(job.block_ids),
            sampling=job.sampling,
        )

    def _plan(self, running: dict[int, Job], step_tokens: int) -> tuple[SequenceWork, ...]:
        work = []
        order = sorted(running.items(), key=lambda item: self._remaining(item[1]))
        for slot, job in order:
            tokens = min(self._remaining(job), step_tokens)
            if tokens == 0:
                continue
            step_tokens -= tokens
            job.computed_tokens += tokens
            needed = -(-job.computed_tokens // self.engine.pool.block_tokens) - len(job.block_ids)
            fresh = [self._free.pop() for _ in range(max(needed, 0))]
            job.block_ids += fresh
            work.append(SequenceWork(slot, tokens, tuple(fresh)))
        return tuple(work)

    def _remaining(self, job: Job) -> int:
        return len(job.prompt) + len(job.output) - job.computed_tokens

    def _execute(self, finished, new, work):
        self._step += 1
        return self.engine.execute(StepOrder(self._step, finished, new, work))


def copies(job: Job, count: int) -> list[Job]:
    """Returns fresh jobs like this one."""
    return [replace(job, block_ids=[], output=[]) for _ in range(count)]
