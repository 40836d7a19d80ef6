"""Draws the next token of every sequence of a step at once.

Each row is a pure function of its logits, its parameters and its one uniform number: neighbours do not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from services.runner.philox import uniform_draw
from services.runner.step import FailureReason, Sampling

# The likeliest tokens, which nearly always hold what top_p asks for; a row that needs more is sorted in full.
CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class Draw:
    """Which number a row draws, and under which parameters."""

    sampling: Sampling
    position: int
    """Index of the output token that is about to be drawn."""


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int | FailureReason]:
    """Returns each row's token, or why it has none; logits are float32 [rows, vocabulary] and may be changed."""
    # The maximum of a row with a NaN is NaN, so one reduction finds every kind of bad row.
    is_sound = torch.isfinite(logits.amax(dim=-1)).tolist()
    _mask_early_ends(logits, draws)
    best = logits.max(dim=-1)
    tokens: list[int | FailureReason] = list(best.indices.tolist())
    is_possible = torch.isfinite(best.values).tolist()
    for row, sound in enumerate(is_sound):
        if not sound:
            tokens[row] = FailureReason.NAN_LOGITS
        elif not is_possible[row]:
            tokens[row] = FailureReason.NO_CANDIDATE
    random = [row for row, draw in enumerate(draws) if not draw.sampling.is_greedy and isinstance(tokens[row], int)]
    if random:
        drawn = _draw(logits[random], best.values[random], [draws[row] for row in random])
        for row, token in zip(random, drawn, strict=True):
            tokens[row] = token
    return tokens


def _mask_early_ends(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    vocabulary = logits.shape[-1]
    for row, draw in enumerate(draws):
        if draw.position < draw.sampling.min_tokens:
            ends = [token for token in draw.sampling.end_token_ids if token < vocabulary]
            logits[row, ends] = float("-inf")


def _draw(logits: torch.Tensor, best: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    temperatures = [1.0 if draw.sampling.temperature is None else draw.sampling.temperature for draw in draws]
    # Shifted first, so that a tiny temperature gives 0 and -inf but never inf; in float64, where it cannot become 0.
    weights = logits.double().sub_(best.double()[:, None])
    weights.div_(torch.tensor(temperatures, dtype=torch.float64, device=logits.device)[:, None]).exp_()
    tokens = [0] * len(draws)
    filtered = [row for row, draw in enumerate(draws) if _is_filtered(draw.sampling, logits.shape[-1])]
    free = [row for row in range(len(draws)) if row not in set(filtered)]
    if free:
        places = _pick(weights[free].cumsum(dim=-1), [draws[row] for row in free])
        for row, place in zip(free, places, strict=True):
            tokens[row] = place
    if filtered:
        picked = _draw_filtered(weights[filtered], [draws[row] for row in filtered])
        for row, token in zip(filtered, picked, strict=True):
            tokens[row] = token
    return tokens


def _draw_filtered(weights: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    few = min(CANDIDATES, weights.shape[-1])
    ordered, ids = _likeliest(weights, few)
    vocabulary = weights.shape[-1]
    tops, masses = _limits(draws, vocabulary, weights.device)
    totals = weights.sum(dim=-1)
    # Enough candidates: all that top_k keeps, or, without top_k, so many that their mass passes top_p of everything.
    is_heavy = (tops == vocabulary) & (ordered.sum(dim=-1) >= masses * totals)
    is_enough = (tops <= few) | is_heavy
    tokens = [0] * len(draws)
    for rows, is_few in ((is_enough.nonzero()[:, 0], True), ((~is_enough).nonzero()[:, 0], False)):
        if rows.numel() == 0:
            continue
        values, names = (ordered[rows], ids[rows]) if is_few else _likeliest(weights[rows], vocabulary)
        chosen = [draws[row] for row in rows.tolist()]
        kept = _keep(values, totals[rows], tops[rows], masses[rows])
        places = _pick(kept.cumsum(dim=-1), chosen)
        for row, place, row_names in zip(rows.tolist(), places, names, strict=True):
            tokens[row] = int(row_names[place])
    return tokens


def _keep(values: torch.Tensor, totals: torch.Tensor, tops: torch.Tensor, masses: torch.Tensor) -> torch.Tensor:
    """Zeroes what top_k and then top_p drop of weights in falling order."""
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= tops[:, None], 0.0)
    # top_p is a part of what top_k left; that is all here, unless these are candidates and there is no top_k.
    totals = torch.where(tops <= values.shape[-1], values.sum(dim=-1), totals)
    before = values.cumsum(dim=-1) - values
    return values.masked_fill(before >= (masses * totals)[:, None], 0.0)


def _pick(cumulative: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """Returns the place at which each row's cumulative weight passes its uniform share of the total."""
    uniforms = [uniform_draw(draw.sampling.seed, draw.sampling.choice, draw.position) for draw in draws]
    totals = cumulative[:, -1:].contiguous()
    targets = torch.tensor(uniforms, dtype=torch.float64, device=cumulative.device)[:, None] * totals
    # Rounding may carry the product up to the total, behind the last token that has any weight.
    targets = torch.minimum(targets, torch.nextafter(totals, torch.zeros_like(totals)))
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].tolist()


def _likeliest(weights: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the largest weights in falling order with their token ids; equal weights stand in the order of ids."""
    ids = weights.topk(count, dim=-1, sorted=False).indices.sort(dim=-1).values
    values, order = weights.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def _limits(draws: Sequence[Draw], vocabulary: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    tops = [_top_k(draw.sampling, vocabulary) for draw in draws]
    masses = [1.0 if draw.sampling.top_p is None else draw.sampling.top_p for draw in draws]
    return torch.tensor(tops, device=device), torch.tensor(masses, dtype=torch.float64, device=device)


def _top_k(sampling: Sampling, vocabulary: int) -> int:
    is_off = sampling.top_k is None or sampling.top_k <= 0
    return vocabulary if is_off else min(sampling.top_k or vocabulary, vocabulary)


def _is_filtered(sampling: Sampling, vocabulary: int) -> bool:
    return _top_k(sampling, vocabulary) < vocabulary or (sampling.top_p is not None and sampling.top_p < 1)
