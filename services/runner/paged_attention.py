"""Attention over the pool, as transformers calls it: one registered function for every architecture."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from services.runner.attention_plan import (
    SingleGroup,
    Visible,
    chunk_span,
    chunk_visible,
    group_blocks,
    group_singles,
    group_visible,
)
from services.runner.batch_inputs import Chunk, Integers, StepBatch
from services.runner.kv_pool import KvPool

# No mask function is registered under this name, so transformers builds no dense mask.
ATTENTION_NAME = "headrace_paged"


@dataclass(frozen=True, slots=True)
class LayerCall:
    """How one layer wants its scores."""

    layer: int
    scaling: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None


class AttentionStep(Protocol):
    """Whatever answers the attention calls of one forward pass."""

    def attend(self, call: LayerCall, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Takes [1, heads, tokens, size] three times and returns [1, tokens, heads, value size]."""


def paged_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention_step: AttentionStep,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Hands a layer's attention to the step that runs; transformers calls it through AttentionInterface."""
    scaling = options.get("scaling")
    call = LayerCall(
        layer=int(module.layer_idx),  # type: ignore[arg-type]
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )
    return attention_step.attend(call, query, key, value), None


def register_attention() -> None:
    """Makes the function known to transformers."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention_forward)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What some tokens look at: rows of the pool, and a mask to add to the scores."""

    pages: torch.Tensor
    mask: torch.Tensor


class PagedStep:
    """Writes the step's keys and values to the pool and attends over it."""

    def __init__(self, batch: StepBatch, pool: KvPool, table: Integers) -> None:
        self._pool = pool
        self._table = table
        self._rows = pool.row_index(batch.block_ids, batch.offsets)
        self._groups = group_singles(batch.singles)
        self._chunks = batch.chunks
        self._gathered: dict[tuple[int, int | None], _Gathered] = {}

    def attend(self, call: LayerCall, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Stores this layer's keys and values, then lets every sequence see its own."""
        self._pool.write(call.layer, self._rows, key[0].transpose(0, 1), value[0].transpose(0, 1))
        parts = [self._attend_group(call, group, query) for group in self._groups]
        for chunk in self._chunks:
            row = slice(chunk.row_start, chunk.row_start + chunk.tokens)
            fresh = (key[:, :, row], value[:, :, row])
            parts.append(self._attend_chunk(call, chunk, query[:, :, row], fresh))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _attend_group(self, call: LayerCall, group: SingleGroup, query: torch.Tensor) -> torch.Tensor:
        gathered = self._group_gathered(group, call.window, query.dtype)
        members, keys = gathered.mask.shape[0], gathered.mask.shape[-1]
        key, value = (
            states.view(members, keys, *states.shape[1:]).transpose(1, 2)
            for states in self._pool.gather(call.layer, gathered.pages)
        )
        # The query heads that share a KV head stand as one head's queries: no key is read twice.
        grouped = query[0, :, group.row_start : group.row_end].transpose(0, 1)
        grouped = grouped.reshape(members, key.shape[1], -1, query.shape[-1])
        if call.softcap is None and call.sinks is None:
            out = scaled_dot_product_attention(grouped, key, value, attn_mask=gathered.mask, scale=call.scaling)
        else:
            sinks = None if call.sinks is None else call.sinks.view(1, key.shape[1], -1, 1)
            out = _attend_by_hand(grouped, key, value, gathered.mask, call, sinks)
        return out.reshape(1, members, query.shape[1], -1)

    def _attend_chunk(
        self, call: LayerCall, chunk: Chunk, query: torch.Tensor, fresh: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        is_plain = call.softcap is None and call.sinks is None
        is_windowed = call.window is not None and chunk.end > call.window
        if chunk.first == 0 and not is_windowed and is_plain:
            key, value = fresh
            out = scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=call.scaling, enable_gqa=query.shape[1] != key.shape[1]
            )
            return out.transpose(1, 2)
        gathered = self._chunk_gathered(chunk, call.window, query.dtype)
        keys = gathered.mask.shape[-1]
        key, value = (states[:keys].transpose(0, 1)[None] for states in self._pool.gather(call.layer, gathered.pages))
        if is_plain:
            gqa = query.shape[1] != key.shape[1]
            out = scaled_dot_product_attention(
                query, key, value, attn_mask=gathered.mask, scale=call.scaling, enable_gqa=gqa
            )
            return out.transpose(1, 2)
        shares = query.shape[1] // key.shape[1]
        mask = gathered.mask.repeat(1, 1, shares, 1)
        grouped = query.reshape(1, key.shape[1], -1, query.shape[-1])
        sinks = None
        if call.sinks is not None:
            sinks = call.sinks.view(1, key.shape[1], shares, 1).repeat_interleave(chunk.tokens, dim=2)
        out = _attend_by_hand(grouped, key, value, mask, call, sinks)
        return out.view(1, query.shape[1], chunk.tokens, -1).transpose(1, 2)

    def _group_gathered(self, group: SingleGroup, window: int | None, dtype: torch.dtype) -> _Gathered:
        known = self._gathered.get((group.row_start, window))
        if known is None:
            blocks, first_positions = group_blocks(group, self._table, self._pool.block_tokens, window)
            keys = blocks.shape[1] * self._pool.block_tokens
            visible = group_visible(group, first_positions, keys, window)
            known = _Gathered(self._pool.page_index(blocks), self._additive(visible, dtype)[:, None, None, :])
            self._gathered[group.row_start, window] = known
        return known

    def _chunk_gathered(self, chunk: Chunk, window: int | None, dtype: torch.dtype) -> _Gathered:
        known = self._gathered.get((chunk.row_start, window))
        if known is None:
            span = chunk_span(chunk, self._table, self._pool.block_tokens, window)
            visible = chunk_visible(chunk, span.first_position, window)
            known = _Gathered(self._pool.page_index(span.block_ids), self._additive(visible, dtype)[None, None])
            self._gathered[chunk.row_start, window] = known
        return known

    def _additive(self, visible: Visible, dtype: torch.dtype) -> torch.Tensor:
        mask = torch.zeros(visible.shape, dtype=dtype).masked_fill_(torch.from_numpy(~visible), float("-inf"))
        return mask.to(self._pool.device)


def _attend_by_hand(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    call: LayerCall,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attends where scores are capped or a sink takes part, which no fused kernel of the CPU does."""
    scores = torch.matmul(query, key.transpose(2, 3)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    scores = (scores + mask).float()
    if sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        column = sinks.float().expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1]
    return torch.matmul(weights.to(value.dtype), value)
