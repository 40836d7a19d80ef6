"""Executes steps: takes in a plan's changes, computes its work as one batch, samples."""

import time
from dataclasses import dataclass

import torch

from services.runner.batch_inputs import Integers, StepBatch, build_batch
from services.runner.kv_pool import KvPool
from services.runner.paged_attention import PagedStep
from services.runner.sampling import Draw, sample
from services.runner.sequence import SequenceState, SlotTable
from services.runner.step import Failure, FailureReason, StepOrder, StepOutcome, StepTimes

_MESSAGES = {
    FailureReason.NAN_LOGITS: "the model's scores are not finite numbers at output position {position}",
    FailureReason.NO_CANDIDATE: "min_tokens forbids every token that is possible at output position {position}",
}


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much an engine holds at once."""

    sequence_slots: int
    context_length: int


@torch.inference_mode()
def compute_logits(model: torch.nn.Module, pool: KvPool, batch: StepBatch, table: Integers) -> torch.Tensor:
    """Runs the model over a row; returns the sampling rows' logits in float32."""
    output = model(
        input_ids=torch.from_numpy(batch.token_ids)[None].to(pool.device),
        position_ids=torch.from_numpy(batch.positions)[None].to(pool.device),
        use_cache=False,
        logits_to_keep=torch.from_numpy(batch.sampling_rows).to(pool.device),
        attention_step=PagedStep(batch, pool, table),
    )
    logits: torch.Tensor = output.logits[0]
    return logits.float()


class Engine:
    """The model with its KV cache and its slots; lives in one thread."""

    def __init__(self, model: torch.nn.Module, pool: KvPool, limits: EngineLimits) -> None:
        self._model = model
        self.pool = pool
        self._slots = SlotTable(limits.sequence_slots, pool.block_count, pool.block_tokens, limits.context_length)

    @property
    def sequences(self) -> int:
        """Returns how many slots are taken."""
        return len(self._slots)

    def reset(self) -> None:
        """Forgets every sequence; the pool's contents are then nobody's."""
        self._slots.clear()

    @torch.inference_mode()
    def execute(self, order: StepOrder) -> StepOutcome:
        """Runs one step; raises PlanError if the order contradicts what the engine holds."""
        started = time.time_ns()
        clock = time.perf_counter_ns()
        for slot in order.finished_slots:
            self._slots.release(slot)
        for new in order.new_sequences:
            self._slots.introduce(new)
        # A failed sequence waits for the scheduler to end it; what run-ahead planned for it meanwhile is void.
        work = tuple(item for item in order.work if not self._slots[item.slot].is_failed)
        if not work:
            return StepOutcome(order.step, StepTimes(started, time.perf_counter_ns() - clock))
        batch = build_batch(work, self._slots)
        self.pool.clear_blocks(batch.opened_blocks)
        prepared = time.perf_counter_ns()
        logits = compute_logits(self._model, self.pool, batch, self._slots.block_ids)
        computed = time.perf_counter_ns()
        token_ids, failures = self._sample(batch.sampling, logits)
        sampled = time.perf_counter_ns()
        return StepOutcome(
            step=order.step,
            times=StepTimes(started, prepared - clock, computed - prepared, sampled - computed),
            batch_sequences=len(work),
            batch_tokens=len(batch.token_ids),
            token_ids=token_ids,
            failures=failures,
        )

    def _sample(
        self, sequences: tuple[SequenceState, ...], logits: torch.Tensor
    ) -> tuple[dict[int, int], tuple[Failure, ...]]:
        if not sequences:
            return {}, ()
        draws = [Draw(sequence.sampling, sequence.output_tokens) for sequence in sequences]
        token_ids: dict[int, int] = {}
        failures = []
        for sequence, drawn in zip(sequences, sample(logits, draws), strict=True):
            if isinstance(drawn, FailureReason):
                sequence.is_failed = True
                message = _MESSAGES[drawn].format(position=sequence.output_tokens)
                failures.append(Failure(sequence.slot, drawn, message))
            else:
                sequence.token_ids.append(drawn)
                token_ids[sequence.slot] = drawn
        return token_ids, tuple(failures)
