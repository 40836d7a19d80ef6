"""Protocol messages to the scheduler's own values and back."""

from google.protobuf.duration_pb2 import Duration

from headrace.v1 import generation_pb2, scheduler_pb2, step_pb2
from services.scheduler.request import CachePolicy, FinishReason, Request, RequestSpec
from services.scheduler.runner_identity import KvFacts, ModelFacts, RunnerIdentity
from services.scheduler.runner_session import RunnerSession
from services.scheduler.stage_clock import Stage
from services.scheduler.step_plan import Failure, Introduction, Plan, StepOutcome
from services.scheduler.transfers import LoadOrder, PlacedBlock, PublishOrder, TransferOutcome, TransferReport

_POLICIES = {
    generation_pb2.CACHE_POLICY_UNSPECIFIED: CachePolicy.READ_WRITE,
    generation_pb2.CACHE_POLICY_READ_WRITE: CachePolicy.READ_WRITE,
    generation_pb2.CACHE_POLICY_READ_ONLY: CachePolicy.READ_ONLY,
    generation_pb2.CACHE_POLICY_BYPASS: CachePolicy.BYPASS,
}

_REASONS = {
    FinishReason.STOP: generation_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: generation_pb2.FINISH_REASON_CANCELLED,
    FinishReason.DEADLINE: generation_pb2.FINISH_REASON_DEADLINE,
    FinishReason.ERROR: generation_pb2.FINISH_REASON_ERROR,
}

_OUTCOMES = {
    step_pb2.TRANSFER_OUTCOME_DONE: TransferOutcome.DONE,
    step_pb2.TRANSFER_OUTCOME_MISS: TransferOutcome.MISS,
    step_pb2.TRANSFER_OUTCOME_CORRUPT: TransferOutcome.CORRUPT,
    step_pb2.TRANSFER_OUTCOME_TIMEOUT: TransferOutcome.TIMEOUT,
}


def spec_from(start: scheduler_pb2.SubmitStart, traceparent: str) -> RequestSpec:
    """Reads a submission."""
    return RequestSpec(
        request_id=start.request_id,
        prompt=tuple(start.prompt_token_ids),
        max_tokens=start.max_tokens,
        seed=start.seed,
        sampling=start.sampling.SerializeToString(),
        model=start.model,
        model_version=start.model_version,
        tokenizer_digest=start.tokenizer_digest,
        tenant_namespace=start.tenant_namespace,
        min_tokens=start.min_tokens,
        stop_token_ids=frozenset(start.stop_token_ids),
        ignore_eos=start.ignore_eos,
        choices=start.choices or 1,
        priority=start.priority,
        do_not_queue=start.do_not_queue,
        cache_policy=_POLICIES.get(start.cache_policy, CachePolicy.READ_WRITE),
        traceparent=traceparent,
    )


def identity_from(hello: step_pb2.RunnerHello) -> RunnerIdentity:
    """Reads a runner's hello."""
    model, kv = hello.model, hello.kv
    return RunnerIdentity(
        runner_id=hello.runner_id,
        incarnation=hello.incarnation,
        address=hello.address,
        model=ModelFacts(
            name=model.name,
            version=model.version,
            architecture=model.architecture,
            weights_digest=model.weights_digest,
            tokenizer_digest=model.tokenizer_digest,
            adapter_digest=model.adapter_digest,
            context_length=model.context_length,
            vocabulary_size=model.vocabulary_size,
            eos_token_ids=frozenset(model.eos_token_ids),
            dtype=model.dtype,
        ),
        kv=KvFacts(kv.block_tokens, kv.block_count, kv.block_bytes, kv.dtype, kv.layout, kv.rope),
        step_tokens=hello.step_tokens,
        sequence_slots=hello.sequence_slots,
        has_l2=hello.has_l2,
    )


def outcome_from(result: step_pb2.StepResult) -> StepOutcome:
    """Reads a step's result."""
    stats, seconds = result.stats, None
    if result.HasField("stats"):
        seconds = (stats.prepare_nanoseconds + stats.forward_nanoseconds + stats.sample_nanoseconds) / 1e9
    device = result.device
    return StepOutcome(
        step=result.step,
        slots=list(result.slots),
        token_ids=list(result.token_ids),
        failures=[Failure(item.slot, item.reason, item.message) for item in result.failures],
        compute_seconds=seconds,
        device_utilization=device.utilization if device.HasField("utilization") else None,
    )


def report_from(transfer: step_pb2.TransferResult) -> TransferReport:
    """Reads a transfer's result."""
    outcome = _OUTCOMES.get(transfer.outcome, TransferOutcome.UNAVAILABLE)
    return TransferReport(transfer.transfer_id, outcome, transfer.bytes, transfer.message)


def plan_message(plan: Plan, epoch: int) -> step_pb2.AttachResponse:
    """Writes a plan."""
    return step_pb2.AttachResponse(
        plan=step_pb2.StepPlan(
            epoch=epoch,
            step=plan.step,
            finished_slots=plan.finished_slots,
            new_sequences=[_new_sequence(item) for item in plan.introductions],
            work=[
                step_pb2.SequenceWork(slot=item.residency.slot, tokens=item.tokens, new_block_ids=item.new_block_ids)
                for item in plan.work
            ],
            loads=[_load(order) for order in plan.loads],
            publishes=[_publish(order) for order in plan.publishes],
        )
    )


def _new_sequence(introduction: Introduction) -> step_pb2.NewSequence:
    spec = introduction.residency.request.spec
    return step_pb2.NewSequence(
        slot=introduction.residency.slot,
        request_id=spec.request_id,
        token_ids=introduction.token_ids,
        prompt_tokens=len(spec.prompt),
        computed_tokens=introduction.computed_tokens,
        block_ids=introduction.block_ids,
        sampling=generation_pb2.SamplingParams.FromString(spec.sampling),
        seed=spec.seed,
        min_tokens=spec.min_tokens,
        end_token_ids=sorted(introduction.residency.end_ids),
        traceparent=spec.traceparent,
    )


def _stored_blocks(blocks: tuple[PlacedBlock, ...]) -> list[step_pb2.StoredBlock]:
    return [step_pb2.StoredBlock(index=block.index, block_id=block.block_id, block_key=block.key) for block in blocks]


def _load(order: LoadOrder) -> step_pb2.BlockLoad:
    return step_pb2.BlockLoad(
        transfer_id=order.transfer_id,
        value_key=order.value.value_key,
        integrity_key=order.value.integrity_key,
        blocks=_stored_blocks(order.blocks),
        token_ids=order.token_ids,
        timeout_milliseconds=int(order.timeout_seconds * 1000),
        traceparent=order.residency.request.spec.traceparent,
        request_id=order.residency.request.spec.request_id,
    )


def _publish(order: PublishOrder) -> step_pb2.BlockPublish:
    return step_pb2.BlockPublish(
        transfer_id=order.transfer_id,
        value_key=order.value.value_key,
        integrity_key=order.value.integrity_key,
        blocks=_stored_blocks(order.blocks),
        token_ids=order.token_ids,
        expiry_seconds=order.expiry_seconds,
        traceparent=order.traceparent,
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(max(int(seconds * 1e9), 0))
    return duration


def news_message(token_ids: list[int], request: Request | None) -> scheduler_pb2.SubmitResponse:
    """Writes some tokens; with a request, who answers them."""
    message = scheduler_pb2.SubmitResponse(token_ids=token_ids)
    if request is not None and request.served_by is not None:
        message.model, message.model_version, message.runner_id = request.served_by
    return message


def add_summary(message: scheduler_pb2.SubmitResponse, request: Request, now: float) -> None:
    """Completes a request's last message."""
    clock = request.clock
    assert request.finish is not None
    message.finish_reason = _REASONS[request.finish]
    message.usage.CopyFrom(
        generation_pb2.Usage(
            prompt_tokens=len(request.spec.prompt),
            cached_tokens_l1=request.cached_tokens_l1,
            cached_tokens_l2=request.cached_tokens_l2,
            completion_tokens=request.output_tokens,
            recomputed_tokens=request.recomputed_tokens,
        )
    )
    timing = generation_pb2.Timing(
        queue=_duration(clock.seconds(Stage.QUEUE)),
        kv_load=_duration(clock.seconds(Stage.KV_LOOKUP) + clock.seconds(Stage.KV_LOAD)),
        prefill=_duration(clock.seconds(Stage.PREFILL)),
        decode=_duration(clock.seconds(Stage.DECODE)),
        total=_duration(now - clock.submitted_at),
    )
    if clock.first_token_at is not None:
        timing.time_to_first_token.CopyFrom(_duration(clock.first_token_at - clock.submitted_at))
    message.timing.CopyFrom(timing)


def load_message(session: RunnerSession) -> scheduler_pb2.RunnerLoad:
    """Writes what a runner is and does."""
    pool = session.pool
    message = _runner_message(session.identity)
    message.running_requests = len(session.running)
    message.used_blocks, message.cached_blocks, message.total_blocks = pool.used, pool.cached, pool.total
    message.epoch = session.epoch
    message.is_draining = session.is_draining
    return message


def away_message(identity: RunnerIdentity) -> scheduler_pb2.RunnerLoad:
    """Writes what a runner was that may come back."""
    message = _runner_message(identity)
    message.is_away = True
    return message


def _runner_message(identity: RunnerIdentity) -> scheduler_pb2.RunnerLoad:
    model = identity.model
    return scheduler_pb2.RunnerLoad(
        runner_id=identity.runner_id,
        incarnation=identity.incarnation,
        address=identity.address,
        model=step_pb2.ModelIdentity(
            name=model.name,
            version=model.version,
            architecture=model.architecture,
            weights_digest=model.weights_digest,
            tokenizer_digest=model.tokenizer_digest,
            adapter_digest=model.adapter_digest,
            context_length=model.context_length,
            vocabulary_size=model.vocabulary_size,
            eos_token_ids=sorted(model.eos_token_ids),
            dtype=model.dtype,
        ),
        block_tokens=identity.kv.block_tokens,
        request_tokens_limit=identity.request_tokens_limit,
    )
