"""Which keys the tokens of a step may see: worked out once per step and window, used by every layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.runner.batch_inputs import Chunk, Integers

Visible = NDArray[np.bool_]

# A group of single tokens is padded to its longest sequence; one much shorter starts a group of its own.
SHORTEST_PART_OF_GROUP = 0.5


@dataclass(frozen=True, slots=True)
class Span:
    """The blocks that some tokens look at, and where their first position lies."""

    block_ids: Integers
    first_position: int


@dataclass(frozen=True, slots=True)
class SingleGroup:
    """Single tokens, consecutive in the row, whose sequences are about equally long."""

    row_start: int
    row_end: int
    slots: Integers
    lengths: Integers
    """Tokens of each sequence, the new one included."""


def group_singles(singles: Sequence[Chunk]) -> list[SingleGroup]:
    """Cuts single tokens, longest first, into groups that waste little when padded."""
    groups: list[SingleGroup] = []
    start = 0
    for place in range(1, len(singles) + 1):
        if place < len(singles) and singles[place].end >= singles[start].end * SHORTEST_PART_OF_GROUP:
            continue
        members = singles[start:place]
        groups.append(
            SingleGroup(
                row_start=members[0].row_start,
                row_end=members[-1].row_start + 1,
                slots=np.array([member.slot for member in members]),
                lengths=np.array([member.end for member in members]),
            )
        )
        start = place
    return groups


def group_blocks(
    group: SingleGroup, table: Integers, block_tokens: int, window: int | None
) -> tuple[Integers, Integers]:
    """Returns each member's blocks, [members, blocks], and the position of each one's first key, [members]."""
    first = np.zeros_like(group.lengths) if window is None else np.maximum(group.lengths - window, 0) // block_tokens
    last = (group.lengths - 1) // block_tokens
    columns = first[:, None] + np.arange(int((last - first).max()) + 1)
    # Padding points at a block of the sequence's own, whose contents cannot be another one's NaN.
    columns = np.minimum(columns, last[:, None])
    return table[group.slots[:, None], columns], first * block_tokens


def group_visible(group: SingleGroup, first_positions: Integers, keys: int, window: int | None) -> Visible:
    """Tells which gathered keys each member sees, [members, keys]."""
    positions = first_positions[:, None] + np.arange(keys)
    visible = positions < group.lengths[:, None]
    if window is not None:
        visible &= positions >= group.lengths[:, None] - window
    return visible


def chunk_span(chunk: Chunk, table: Integers, block_tokens: int, window: int | None) -> Span:
    """Returns the blocks that a chunk looks at."""
    first = 0 if window is None else max(chunk.first - window + 1, 0) // block_tokens
    last = (chunk.end - 1) // block_tokens
    return Span(table[chunk.slot, first : last + 1], first * block_tokens)


def chunk_visible(chunk: Chunk, first_position: int, window: int | None) -> Visible:
    """Tells which keys, from first_position to the chunk's end, each of its tokens sees."""
    queries = np.arange(chunk.first, chunk.end)[:, None]
    keys = np.arange(first_position, chunk.end)[None, :]
    visible = keys <= queries
    if window is not None:
        visible &= keys > queries - window
    return visible
