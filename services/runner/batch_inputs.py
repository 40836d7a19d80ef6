"""Turns the work of a step into one flattened row of tokens: single tokens first, then longer chunks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.runner.sequence import SequenceState, SlotTable
from services.runner.step import PlanError, SequenceWork

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence within the row."""

    slot: int
    row_start: int
    first: int
    """Position in the sequence of the chunk's first token."""
    end: int
    """Position behind its last one."""

    @property
    def tokens(self) -> int:
        """Returns the chunk's length."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The row of a step."""

    token_ids: Integers
    positions: Integers
    block_ids: Integers
    """The block that each token's KV goes to."""
    offsets: Integers
    """The token's place within that block."""
    singles: tuple[Chunk, ...]
    """Chunks of one token: they lead the row and are attended as one batch."""
    chunks: tuple[Chunk, ...]
    sampling: tuple[SequenceState, ...]
    """The sequences that sample after this step."""
    sampling_rows: Integers
    """Where in the row their last tokens are."""
    opened_blocks: tuple[int, ...]
    """Blocks that get their first tokens in this step and stay partly empty."""


def build_batch(work: tuple[SequenceWork, ...], slots: SlotTable) -> StepBatch:
    """Lays out the row and moves every sequence forward; raises PlanError if some work is impossible."""
    accepted = [(slots.accept(item), item.tokens) for item in work]
    if len({sequence.slot for sequence, _ in accepted}) < len(accepted):
        raise PlanError("a slot has two pieces of work in one step")
    # Single tokens first, those of long sequences before others: neighbours are then padded to about the same length.
    accepted.sort(key=lambda pair: (pair[1] > 1, -pair[0].computed_tokens))
    token_ids: list[int] = []
    pieces: list[Chunk] = []
    sampling: list[SequenceState] = []
    sampling_rows: list[int] = []
    for sequence, tokens in accepted:
        first, end = sequence.computed_tokens, sequence.computed_tokens + tokens
        pieces.append(Chunk(sequence.slot, len(token_ids), first, end))
        token_ids += sequence.token_ids[first:end]
        sequence.computed_tokens = end
        if end == len(sequence.token_ids):
            sampling.append(sequence)
            sampling_rows.append(len(token_ids) - 1)
    positions = np.concatenate([np.arange(piece.first, piece.end) for piece in pieces])
    rows = np.repeat([piece.slot for piece in pieces], [piece.tokens for piece in pieces])
    return StepBatch(
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        block_ids=slots.block_ids[rows, positions // slots.block_tokens],
        offsets=positions % slots.block_tokens,
        singles=tuple(piece for piece in pieces if piece.tokens == 1),
        chunks=tuple(piece for piece in pieces if piece.tokens > 1),
        sampling=tuple(sampling),
        sampling_rows=np.array(sampling_rows, dtype=np.int64),
        opened_blocks=tuple(_opened_blocks(pieces, slots)),
    )


def _opened_blocks(pieces: list[Chunk], slots: SlotTable) -> list[int]:
    opened = []
    for piece in pieces:
        last, used = divmod(piece.end, slots.block_tokens)
        if used and piece.first <= last * slots.block_tokens:
            opened.append(int(slots.block_ids[piece.slot, last]))
    return opened
