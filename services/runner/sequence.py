"""The sequences that hold a slot: their tokens, their blocks, and how far they are computed."""

import numpy as np
from numpy.typing import NDArray

from services.runner.step import NewSequence, PlanError, Sampling, SequenceWork


class SequenceState:
    """One running sequence."""

    def __init__(self, new: NewSequence) -> None:
        self.slot = new.slot
        self.request_id = new.request_id
        self.sampling: Sampling = new.sampling
        self.token_ids: list[int] = list(new.token_ids)
        self.prompt_tokens = new.prompt_tokens
        self.computed_tokens = new.computed_tokens
        self.blocks = 0
        self.is_failed = False

    @property
    def output_tokens(self) -> int:
        """Returns how many tokens were sampled so far, here or elsewhere."""
        return len(self.token_ids) - self.prompt_tokens


class SlotTable:
    """All slots of a runner, with one row of block ids each."""

    def __init__(self, sequence_slots: int, block_count: int, block_tokens: int, context_length: int) -> None:
        self.block_tokens = block_tokens
        self._block_count = block_count
        self._context_length = context_length
        self._sequences: dict[int, SequenceState] = {}
        row = -(-context_length // block_tokens)
        self.block_ids: NDArray[np.int64] = np.zeros((sequence_slots, row), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, slot: int) -> SequenceState:
        try:
            return self._sequences[slot]
        except KeyError:
            raise PlanError(f"slot {slot} holds no sequence") from None

    def clear(self) -> None:
        """Forgets every sequence."""
        self._sequences.clear()

    def release(self, slot: int) -> None:
        """Frees a slot."""
        if self._sequences.pop(slot, None) is None:
            raise PlanError(f"slot {slot} was finished but holds no sequence")

    def introduce(self, new: NewSequence) -> None:
        """Gives a sequence its slot; raises PlanError if it cannot have it."""
        if not 0 <= new.slot < len(self.block_ids):
            raise PlanError(f"slot {new.slot} does not exist; there are {len(self.block_ids)}")
        if new.slot in self._sequences:
            raise PlanError(f"slot {new.slot} is taken by {self._sequences[new.slot].request_id}")
        if not 0 < new.prompt_tokens <= len(new.token_ids) or not 0 <= new.computed_tokens < len(new.token_ids):
            raise PlanError(
                f"sequence {new.request_id} has {len(new.token_ids)} tokens, {new.prompt_tokens} of a prompt and "
                f"{new.computed_tokens} computed"
            )
        sequence = SequenceState(new)
        self._sequences[new.slot] = sequence
        self._append_blocks(sequence, new.block_ids)

    def accept(self, work: SequenceWork) -> SequenceState:
        """Takes in the new blocks of a piece of work; raises PlanError if the work does not fit its sequence."""
        sequence = self[work.slot]
        self._append_blocks(sequence, work.new_block_ids)
        end = sequence.computed_tokens + work.tokens
        if not 0 < work.tokens <= len(sequence.token_ids) - sequence.computed_tokens:
            raise PlanError(
                f"slot {work.slot} has {len(sequence.token_ids)} known tokens, {sequence.computed_tokens} of them "
                f"computed; {work.tokens} more cannot be"
            )
        if end > sequence.blocks * self.block_tokens or end > self._context_length:
            raise PlanError(
                f"slot {work.slot} would hold {end} tokens in {sequence.blocks} blocks of {self.block_tokens}; the "
                f"context is {self._context_length}"
            )
        return sequence

    def _append_blocks(self, sequence: SequenceState, block_ids: tuple[int, ...]) -> None:
        row = self.block_ids[sequence.slot]
        end = sequence.blocks + len(block_ids)
        if end > len(row):
            raise PlanError(f"slot {sequence.slot} was given {end} blocks; its row holds {len(row)}")
        if any(not 0 <= block_id < self._block_count for block_id in block_ids):
            raise PlanError(f"slot {sequence.slot} was given a block beyond the pool's {self._block_count}")
        row[sequence.blocks : end] = block_ids
        sequence.blocks = end
