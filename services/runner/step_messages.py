"""Protobuf of the step protocol to and from the engine's plain values."""

from dataclasses import dataclass

from headrace.v1 import generation_pb2, step_pb2
from services.runner.device import DeviceReading
from services.runner.l2.orders import LoadOrder, Outcome, PublishOrder, StoredBlock, TransferReport
from services.runner.model_identity import Identity
from services.runner.step import NewSequence, Sampling, SequenceWork, StepOrder, StepOutcome


@dataclass(frozen=True, slots=True)
class Plan:
    """A scheduler's plan: a step, and the transfers around it."""

    order: StepOrder
    loads: tuple[LoadOrder, ...]
    publishes: tuple[PublishOrder, ...]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a hello says beside the model's identity."""

    runner_id: str
    incarnation: str
    address: str
    step_tokens: int
    sequence_slots: int
    has_l2: bool


def plan_from_proto(plan: step_pb2.StepPlan) -> Plan:
    """Reads a plan."""
    order = StepOrder(
        step=plan.step,
        finished_slots=tuple(plan.finished_slots),
        new_sequences=tuple(_new_sequence(new) for new in plan.new_sequences),
        work=tuple(SequenceWork(work.slot, work.tokens, tuple(work.new_block_ids)) for work in plan.work),
    )
    return Plan(order, tuple(_load(load) for load in plan.loads), tuple(_publish(item) for item in plan.publishes))


def hello_to_proto(introduction: Introduction, identity: Identity) -> step_pb2.AttachRequest:
    """Writes a runner's first message."""
    model = step_pb2.ModelIdentity(
        name=identity.name,
        version=identity.version,
        architecture=identity.architecture,
        weights_digest=identity.weights_digest,
        tokenizer_digest=identity.tokenizer_digest,
        context_length=identity.context_length,
        vocabulary_size=identity.vocabulary_size,
        eos_token_ids=identity.eos_token_ids,
        dtype=identity.dtype,
    )
    kv = step_pb2.KvLayout(
        block_tokens=identity.block_tokens,
        block_count=identity.block_count,
        block_bytes=identity.block_bytes,
        dtype=identity.dtype,
        layout=identity.layout,
        rope=identity.rope,
        sliding_window=identity.smallest_window,
    )
    hello = step_pb2.RunnerHello(
        runner_id=introduction.runner_id,
        incarnation=introduction.incarnation,
        address=introduction.address,
        model=model,
        kv=kv,
        step_tokens=introduction.step_tokens,
        sequence_slots=introduction.sequence_slots,
        has_l2=introduction.has_l2,
    )
    return step_pb2.AttachRequest(hello=hello)


def result_to_proto(outcome: StepOutcome, epoch: int, reading: DeviceReading) -> step_pb2.AttachRequest:
    """Writes what a step gave."""
    times = outcome.times
    result = step_pb2.StepResult(
        epoch=epoch,
        step=outcome.step,
        slots=outcome.token_ids.keys(),
        token_ids=outcome.token_ids.values(),
        failures=[
            step_pb2.SequenceFailure(slot=failure.slot, reason=failure.reason.value, message=failure.message)
            for failure in outcome.failures
        ],
        stats=step_pb2.StepStats(
            started_unix_nanoseconds=times.started_unix_nanoseconds,
            prepare_nanoseconds=times.prepare_nanoseconds,
            forward_nanoseconds=times.forward_nanoseconds,
            sample_nanoseconds=times.sample_nanoseconds,
            batch_sequences=outcome.batch_sequences,
            batch_tokens=outcome.batch_tokens,
        ),
        device=_device(reading),
    )
    return step_pb2.AttachRequest(result=result)


def heartbeat_to_proto(epoch: int, reading: DeviceReading) -> step_pb2.AttachRequest:
    """Writes a sign of life."""
    return step_pb2.AttachRequest(heartbeat=step_pb2.Heartbeat(epoch=epoch, device=_device(reading)))


def draining_to_proto(epoch: int) -> step_pb2.AttachRequest:
    """Writes that nothing new may come."""
    return step_pb2.AttachRequest(draining=step_pb2.Draining(epoch=epoch))


def transfer_to_proto(report: TransferReport, epoch: int) -> step_pb2.AttachRequest:
    """Writes the end of a transfer."""
    transfer = step_pb2.TransferResult(
        epoch=epoch,
        transfer_id=report.transfer_id,
        outcome=_OUTCOMES[report.outcome],
        bytes=report.payload_bytes,
        duration_nanoseconds=report.duration_nanoseconds,
        message=report.message,
    )
    return step_pb2.AttachRequest(transfer=transfer)


_OUTCOMES = {
    Outcome.DONE: step_pb2.TRANSFER_OUTCOME_DONE,
    Outcome.MISS: step_pb2.TRANSFER_OUTCOME_MISS,
    Outcome.CORRUPT: step_pb2.TRANSFER_OUTCOME_CORRUPT,
    Outcome.TIMEOUT: step_pb2.TRANSFER_OUTCOME_TIMEOUT,
    Outcome.UNAVAILABLE: step_pb2.TRANSFER_OUTCOME_UNAVAILABLE,
}


def _new_sequence(new: step_pb2.NewSequence) -> NewSequence:
    return NewSequence(
        slot=new.slot,
        request_id=new.request_id,
        token_ids=tuple(new.token_ids),
        prompt_tokens=new.prompt_tokens,
        computed_tokens=new.computed_tokens,
        block_ids=tuple(new.block_ids),
        sampling=_sampling(new.sampling, new),
        traceparent=new.traceparent,
    )


def _sampling(params: generation_pb2.SamplingParams, new: step_pb2.NewSequence) -> Sampling:
    return Sampling(
        temperature=params.temperature if params.HasField("temperature") else None,
        top_p=params.top_p if params.HasField("top_p") else None,
        top_k=params.top_k if params.HasField("top_k") else None,
        seed=new.seed,
        choice=new.choice,
        min_tokens=new.min_tokens,
        end_token_ids=tuple(new.end_token_ids),
    )


def _load(load: step_pb2.BlockLoad) -> LoadOrder:
    return LoadOrder(
        transfer_id=load.transfer_id,
        value_key=load.value_key,
        integrity_key=load.integrity_key,
        blocks=tuple(StoredBlock(block.index, block.block_id, block.block_key) for block in load.blocks),
        token_ids=tuple(load.token_ids),
        timeout_seconds=load.timeout_milliseconds / 1000,
        traceparent=load.traceparent,
        request_id=load.request_id,
    )


def _publish(item: step_pb2.BlockPublish) -> PublishOrder:
    return PublishOrder(
        transfer_id=item.transfer_id,
        value_key=item.value_key,
        integrity_key=item.integrity_key,
        blocks=tuple(StoredBlock(block.index, block.block_id, block.block_key) for block in item.blocks),
        token_ids=tuple(item.token_ids),
        expiry_seconds=item.expiry_seconds,
        traceparent=item.traceparent,
    )


def _device(reading: DeviceReading) -> step_pb2.DeviceStats:
    return step_pb2.DeviceStats(utilization=reading.utilization, memory_used_bytes=reading.memory_used_bytes)
