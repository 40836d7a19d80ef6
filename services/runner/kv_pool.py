"""The runner's KV cache: one tensor of blocks, each block contiguous over all layers.

Within a block the layers follow each other, keys before values, each [block_tokens, kv_heads, head_dim]. So a block is
one copy for a transfer, and one page of a layer is one row for a gather. Layers may differ in heads and sizes: the
tensor is cut into rows of the largest unit that divides every layer's width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from services.runner.batch_inputs import Integers


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores per token."""

    layer: int
    kv_heads: int
    key_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The keys or the values of one layer within a block."""

    heads: int
    size: int
    units: int
    first_row: int


@dataclass(frozen=True, slots=True)
class RowIndex:
    """Where the tokens of a step go, before a layer's own offset is added."""

    block_rows: torch.Tensor
    offsets: torch.Tensor


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """How many blocks a pool has, of what, and where."""

    block_count: int
    block_tokens: int
    dtype: torch.dtype
    device: torch.device


class KvPool:
    """Blocks of keys and values, addressed by block id."""

    def __init__(self, shapes: Sequence[LayerShape], layout: PoolLayout) -> None:
        self.block_count = layout.block_count
        self.block_tokens = layout.block_tokens
        self.dtype = layout.dtype
        self.device = layout.device
        widths = [width for shape in shapes for width in _widths(shape)]
        self._unit = math.gcd(*widths)
        self._parts: dict[int, tuple[_Part, _Part]] = {}
        row = 0
        for shape in shapes:
            parts = []
            for size in (shape.key_size, shape.value_size):
                units = shape.kv_heads * size // self._unit
                parts.append(_Part(shape.kv_heads, size, units, row))
                row += units * self.block_tokens
            self._parts[shape.layer] = (parts[0], parts[1])
        self._block_rows = row
        self._rows = _zeros(self.block_count * row * self._unit, self.dtype, self.device).view(-1, self._unit)
        self._pages = self._rows.view(-1, self.block_tokens * self._unit)
        self._blocks = self._rows.view(self.block_count, row * self._unit)
        self._scratch = [self._rows.new_empty(0), self._rows.new_empty(0)]

    @property
    def block_bytes(self) -> int:
        """Returns the bytes of one block over all layers."""
        return self._block_rows * self._unit * self.dtype.itemsize

    def row_index(self, block_ids: Integers, offsets: Integers) -> RowIndex:
        """Prepares the writes of a step: where each token of its row goes."""
        rows = torch.from_numpy(block_ids * self._block_rows).to(self.device)
        return RowIndex(rows, torch.from_numpy(offsets).to(self.device))

    def write(self, layer: int, index: RowIndex, key: torch.Tensor, value: torch.Tensor) -> None:
        """Stores a layer's keys and values, each [tokens, kv_heads, head_dim]."""
        for part, states in zip(self._parts[layer], (key, value), strict=True):
            rows = index.block_rows + index.offsets * part.units + part.first_row
            if part.units > 1:
                rows = (rows[:, None] + torch.arange(part.units, device=self.device)).flatten()
            self._rows.index_copy_(0, rows, states.reshape(-1, self._unit))

    def page_index(self, block_ids: Integers) -> torch.Tensor:
        """Prepares gathers of these blocks."""
        return torch.from_numpy(block_ids.reshape(-1) * (self._block_rows // self.block_tokens)).to(self.device)

    def gather(self, layer: int, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a layer's keys and values of whole blocks, [tokens, heads, size]; valid until the next call."""
        key, value = (self._gather(part, pages, place) for place, part in enumerate(self._parts[layer]))
        return key, value

    def clear_blocks(self, block_ids: Sequence[int]) -> None:
        """Zeroes blocks that get a new owner and stay partly empty, so that nothing of the old owner's is read."""
        for block_id in block_ids:
            self._blocks[block_id].zero_()

    def read_block(self, block_id: int, out: memoryview) -> None:
        """Copies a block into out; callable from any thread."""
        np.copyto(np.frombuffer(out, dtype=np.uint8), self._blocks[block_id].cpu().view(torch.uint8).numpy())

    def write_block(self, block_id: int, source: memoryview) -> None:
        """Copies source into a block; callable from any thread."""
        block = self._blocks[block_id].view(torch.uint8)
        if block.is_cpu:
            np.copyto(block.numpy(), np.frombuffer(source, dtype=np.uint8))
        else:
            # frombuffer warns about read-only memory, which is only read here.
            block.copy_(torch.from_numpy(np.frombuffer(source, dtype=np.uint8).copy()))

    def _gather(self, part: _Part, pages: torch.Tensor, place: int) -> torch.Tensor:
        rows = pages + part.first_row // self.block_tokens
        if part.units > 1:
            rows = (rows[:, None] + torch.arange(part.units, device=self.device)).flatten()
        elements = rows.numel() * self._pages.shape[1]
        if self._scratch[place].numel() < elements:
            self._scratch[place] = self._rows.new_empty(elements + elements // 2)
        out = self._scratch[place][:elements].view(rows.numel(), -1)
        torch.index_select(self._pages, 0, rows, out=out)
        return out.view(-1, part.heads, part.size)


def _zeros(elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns zeros: a masked position is multiplied by 0, and 0 times NaN is NaN."""
    if device.type != "cpu":
        return torch.zeros(elements, dtype=dtype, device=device)
    # numpy's zeros take memory only when they are written to; torch's take it at once.
    return torch.from_numpy(np.zeros(elements * dtype.itemsize, dtype=np.uint8)).view(dtype)


def _widths(shape: LayerShape) -> tuple[int, int]:
    return shape.kv_heads * shape.key_size, shape.kv_heads * shape.value_size


def block_bytes_of(shapes: Sequence[LayerShape], block_tokens: int, dtype: torch.dtype) -> int:
    """Returns what one block of such layers takes."""
    return sum(sum(_widths(shape)) for shape in shapes) * block_tokens * dtype.itemsize
