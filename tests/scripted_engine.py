"""What a runner does with a StepPlan, without weights: the next token comes from a script.

Its pool remembers which token every position of every block was computed from, and which tokens came before it. So a
block that was freed too early, shared wrongly or counted as cached without being so is an AssertionError here, where a
model would only answer a little differently.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.v1 import step_pb2

Script = Callable[[str, list[int]], int]
"""From request id and all known tokens to the next token."""


def counting_script(request_id: str, known: list[int]) -> int:
    """Depends on every known token, so that a wrong history shows in every later token."""
    return (sum(position * token for position, token in enumerate(known, 1)) + len(known)) % 97 + 3


@dataclass
class ScriptedSequence:
    """A sequence on its slot."""

    request_id: str
    known: list[int]
    computed: int
    block_ids: list[int]
    has_failed: bool = False


@dataclass
class ScriptedStore:
    """A second level that several engines may share: value key to (block key, tokens with history) pairs."""

    values: dict[str, list[tuple[bytes, tuple[int, ...]]]] = field(default_factory=dict)


@dataclass
class ScriptedEngine:
    """Executes plans strictly in order."""

    script: Script
    block_tokens: int
    block_count: int
    store: ScriptedStore = field(default_factory=ScriptedStore)
    failing: set[str] = field(default_factory=set)
    """Requests whose next computation fails, as if their logits were not numbers."""
    computed_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens computed for each request, recomputed ones counted again."""
    sequences: dict[int, ScriptedSequence] = field(default_factory=dict)
    contents: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """(block, offset) to the tokens up to and including that position."""
    largest_step: int = 0

    def execute(self, plan: step_pb2.StepPlan) -> tuple[step_pb2.StepResult, list[step_pb2.TransferResult]]:
        """Does one step and the transfers that came with it."""
        for slot in plan.finished_slots:
            del self.sequences[slot]
        for new in plan.new_sequences:
            self._introduce(new)
        transfers = [self._load(load, plan.epoch) for load in plan.loads]
        result = step_pb2.StepResult(epoch=plan.epoch, step=plan.step)
        for work in plan.work:
            self._compute(work, result)
        self.largest_step = max(self.largest_step, sum(work.tokens for work in plan.work))
        transfers += [self._publish(publish, plan.epoch) for publish in plan.publishes]
        return result, transfers

    def _introduce(self, new: step_pb2.NewSequence) -> None:
        assert new.slot not in self.sequences, f"slot {new.slot} is taken"
        sequence = ScriptedSequence(new.request_id, list(new.token_ids), new.computed_tokens, list(new.block_ids))
        self.sequences[new.slot] = sequence
        assert new.computed_tokens < len(new.token_ids), "nothing is left to compute"
        self._check_history(sequence)

    def _compute(self, work: step_pb2.SequenceWork, result: step_pb2.StepResult) -> None:
        sequence = self.sequences[work.slot]
        sequence.block_ids.extend(work.new_block_ids)
        if sequence.has_failed or sequence.request_id in self.failing:
            sequence.has_failed = True
            result.failures.append(
                step_pb2.SequenceFailure(slot=work.slot, reason="NOT_A_NUMBER", message="logits are not numbers")
            )
            return
        end = sequence.computed + work.tokens
        assert work.tokens > 0, "work of nothing"
        assert end <= len(sequence.known), "work beyond the known tokens"
        assert end <= len(sequence.block_ids) * self.block_tokens, "work beyond the blocks"
        for position in range(sequence.computed, end):
            self.contents[self._place(sequence, position)] = tuple(sequence.known[: position + 1])
        sequence.computed = end
        self._check_history(sequence)
        counted = self.computed_tokens.get(sequence.request_id, 0)
        self.computed_tokens[sequence.request_id] = counted + work.tokens
        if end == len(sequence.known):
            token_id = self.script(sequence.request_id, list(sequence.known))
            sequence.known.append(token_id)
            result.slots.append(work.slot)
            result.token_ids.append(token_id)

    def _place(self, sequence: ScriptedSequence, position: int) -> tuple[int, int]:
        return sequence.block_ids[position // self.block_tokens], position % self.block_tokens

    def _check_history(self, sequence: ScriptedSequence) -> None:
        for position in range(sequence.computed):
            found = self.contents.get(self._place(sequence, position))
            assert found == tuple(sequence.known[: position + 1]), f"wrong KV for {sequence.request_id} at {position}"

    def _load(self, load: step_pb2.BlockLoad, epoch: int) -> step_pb2.TransferResult:
        result = step_pb2.TransferResult(epoch=epoch, transfer_id=load.transfer_id)
        value = self.store.values.get(load.value_key)
        if value is None or any(value[block.index][0] != block.block_key for block in load.blocks):
            result.outcome = step_pb2.TRANSFER_OUTCOME_MISS
            return result
        for block in load.blocks:
            history = value[block.index][1]
            first = len(history) - self.block_tokens
            for offset in range(self.block_tokens):
                self.contents[block.block_id, offset] = history[: first + offset + 1]
        result.outcome = step_pb2.TRANSFER_OUTCOME_DONE
        return result

    def _publish(self, publish: step_pb2.BlockPublish, epoch: int) -> step_pb2.TransferResult:
        self.store.values[publish.value_key] = [
            (block.block_key, self.contents[block.block_id, self.block_tokens - 1]) for block in publish.blocks
        ]
        return step_pb2.TransferResult(
            epoch=epoch,
            transfer_id=publish.transfer_id,
            outcome=step_pb2.TRANSFER_OUTCOME_DONE,
            bytes=len(publish.blocks),
        )
