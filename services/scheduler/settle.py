"""What a step's result means: tokens for their requests, stop checks, full blocks, ended sequences."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.common.errors import GenerationFailed
from services.scheduler.ending import end_request
from services.scheduler.request import FinishReason, Phase, Request
from services.scheduler.residency import Residency
from services.scheduler.runner_session import RunnerSession
from services.scheduler.second_level_order import PublishRange, note_loads_started, take_publishable
from services.scheduler.stage_clock import Stage
from services.scheduler.step_plan import Plan, StepOutcome


class ProtocolViolation(Exception):
    """The runner said something that does not answer what it was asked."""


@dataclass(slots=True)
class Settled:
    """What followed from one result."""

    plan: Plan
    tokens: int = 0
    ended: list[Request] = field(default_factory=list)
    publishes: list[PublishRange] = field(default_factory=list)


def settle_step(session: RunnerSession, outcome: StepOutcome, now: float) -> Settled:
    """Applies the answer to the oldest open plan; what was released since the plan is passed over."""
    if not session.in_flight or session.in_flight[0].step != outcome.step:
        expected = session.in_flight[0].step if session.in_flight else "none"
        raise ProtocolViolation(f"result of step {outcome.step}, expected {expected}")
    if len(outcome.slots) != len(outcome.token_ids):
        raise ProtocolViolation(f"{len(outcome.slots)} slots with {len(outcome.token_ids)} tokens")
    settled = Settled(session.in_flight.popleft())
    note_loads_started(settled.plan.loads, now)
    sampled = dict(zip(outcome.slots, outcome.token_ids, strict=True))
    failures = {failure.slot: failure for failure in outcome.failures}
    block_tokens = session.pool.block_tokens
    for item in settled.plan.work:
        residency = item.residency
        if residency.is_released:
            continue
        slot = residency.slot
        if slot in failures:
            # Nothing of this step is registered: its blocks may hold anything.
            failure = failures[slot]
            _fail(settled, residency, f"{failure.reason}: {failure.message}", now)
            continue
        residency.computed = item.end
        if item.end // block_tokens > residency.registered:
            session.register_computed(residency)
        if not item.is_sampling:
            continue
        token_id = sampled.get(slot)
        if token_id is None or token_id >= session.identity.model.vocabulary_size:
            _fail(settled, residency, "the runner returned no usable token", now)
            continue
        settled.tokens += 1
        _accept(settled, residency, token_id, now)
    return settled


def _fail(settled: Settled, residency: Residency, cause: str, now: float) -> None:
    request = residency.request
    message = f"the model could not go on after {request.output_tokens} output tokens: {cause}"
    end_request(request, FinishReason.ERROR, now, GenerationFailed(message))
    settled.ended.append(request)


def _accept(settled: Settled, residency: Residency, token_id: int, now: float) -> None:
    request, session = residency.request, residency.session
    request.tokens.append(token_id)
    residency.samples_in_flight -= 1
    request.outbox.put(token_id)
    is_after_prefill = request.phase is Phase.PREFILL
    if is_after_prefill:
        request.phase = Phase.DECODE
        if request.clock.first_token_at is None:
            request.clock.first_token_at = now
        request.clock.load = session.load_note()
        request.clock.enter(Stage.DECODE, now)
    finish = _finish_of(request, residency, token_id)
    if is_after_prefill or finish is not None:
        offered = take_publishable(session, residency)
        if offered is not None:
            settled.publishes.append(offered)
    if finish is not None:
        end_request(request, finish, now)
        settled.ended.append(request)


def _finish_of(request: Request, residency: Residency, token_id: int) -> FinishReason | None:
    outputs = request.output_tokens
    if token_id in residency.end_ids and outputs >= request.spec.min_tokens:
        return FinishReason.STOP
    return FinishReason.LENGTH if outputs >= request.spec.max_tokens else None
