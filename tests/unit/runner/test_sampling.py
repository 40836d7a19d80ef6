"""Sampling equals a plain float64 reference, row by row, whatever stands beside the row."""

import math
import random

import pytest
import torch

from services.runner import sampling
from services.runner.philox import uniform_draw
from services.runner.sampling import Draw, sample
from services.runner.step import FailureReason, Sampling

VOCABULARY = 3000


def random_logits(rows: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    """Returns float32 logits."""
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def reference(logits: list[float], draw: Draw) -> int:
    """Draws one token in the plainest way, with Python's floats."""
    params = draw.sampling
    temperature = 1.0 if params.temperature is None else params.temperature
    peak = max(logits)
    weights = {token: math.exp((logit - peak) / temperature) for token, logit in enumerate(logits)}
    is_ordered = 0 < (params.top_k or 0) < len(logits) or (params.top_p is not None and params.top_p < 1)
    tokens = sorted(weights, key=lambda token: (-weights[token], token)) if is_ordered else list(weights)
    if params.top_k is not None and params.top_k > 0:
        tokens = tokens[: params.top_k]
    if params.top_p is not None and params.top_p < 1:
        total, mass, kept = sum(weights[token] for token in tokens), 0.0, []
        for token in tokens:
            if mass >= params.top_p * total:
                break
            kept.append(token)
            mass += weights[token]
        tokens = kept
    target = uniform_draw(params.seed, params.choice, draw.position) * sum(weights[token] for token in tokens)
    mass = 0.0
    for token in tokens:
        mass += weights[token]
        if mass > target:
            return token
    raise AssertionError("the uniform number lies in [0, 1)")


PARAMETERS = [
    Sampling(),
    Sampling(temperature=0.7),
    Sampling(temperature=2.0),
    Sampling(top_k=1),
    Sampling(top_k=40),
    Sampling(top_k=-1),
    Sampling(top_k=0),
    Sampling(top_k=2000),
    Sampling(top_k=VOCABULARY + 5),
    Sampling(top_p=0.0),
    Sampling(top_p=0.2),
    Sampling(top_p=0.95),
    Sampling(top_p=0.9999),
    Sampling(top_p=1.0),
    Sampling(temperature=1.5, top_k=50, top_p=0.8),
    Sampling(temperature=5.0, top_p=0.99),
    Sampling(temperature=5.0, top_k=1500, top_p=0.9),
]


@pytest.mark.parametrize("params", PARAMETERS, ids=str)
def test_every_filter_draws_what_the_reference_draws(params: Sampling) -> None:
    logits = random_logits(20)
    draws = [
        Draw(Sampling(params.temperature, params.top_p, params.top_k, seed=row, choice=row % 3), position=row)
        for row in range(len(logits))
    ]
    expected = [
        max(range(VOCABULARY), key=row.__getitem__) if params.is_greedy else reference(row, draw)
        for row, draw in zip(logits.tolist(), draws, strict=True)
    ]
    assert sample(logits, draws) == expected


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """SMP-1: with and without seeds, filters and bad rows beside it."""
    logits = random_logits(len(PARAMETERS) + 1)
    logits[-1, 5] = float("nan")
    draws = [Draw(params, position=3) for params in [*PARAMETERS, Sampling()]]
    together = sample(logits.clone(), draws)
    order = list(range(len(draws)))
    random.Random(3).shuffle(order)
    shuffled = sample(logits[order].clone(), [draws[row] for row in order])
    alone = [sample(logits[row : row + 1].clone(), [draws[row]])[0] for row in range(len(draws))]
    assert together == alone
    assert [shuffled[order.index(row)] for row in range(len(draws))] == alone


@pytest.mark.parametrize("temperature", [1e-4, 1e-6, 1e-38, 1e-45])
def test_a_tiny_temperature_is_greedy_and_overflows_nothing(temperature: float) -> None:
    """SMP-4."""
    logits = random_logits(30, spread=10.0)
    logits[3], logits[4] = logits[3] - 60, logits[4] + 60
    best = logits.argmax(dim=-1).tolist()
    assert sample(logits, [Draw(Sampling(temperature=temperature, seed=row), 0) for row in range(30)]) == best


def test_a_tiny_top_p_is_greedy() -> None:
    """SMP-4."""
    logits = random_logits(30, spread=10.0)
    best = logits.argmax(dim=-1).tolist()
    assert sample(logits, [Draw(Sampling(top_p=1e-4, seed=row), 0) for row in range(30)]) == best


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("is_whole_row", [True, False])
def test_a_row_that_is_not_finite_fails_and_its_neighbours_do_not(bad: float, is_whole_row: bool) -> None:
    """SMP-8."""
    logits = random_logits(3)
    draws = [Draw(Sampling(seed=row), 0) for row in range(3)]
    sound = sample(logits.clone(), draws)
    logits[1, slice(None) if is_whole_row else 17] = bad
    assert sample(logits, draws) == [sound[0], FailureReason.NAN_LOGITS, sound[2]]


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((50, VOCABULARY), float("-inf"))
    logits[:, 7], logits[:, 9] = 0.0, 0.0
    drawn = sample(logits, [Draw(Sampling(seed=row), 0) for row in range(50)])
    assert set(drawn) == {7, 9}


def test_end_tokens_are_not_drawn_before_min_tokens() -> None:
    """STOP-3: all of them, greedy or not; an id beyond the vocabulary is no end."""
    ends = (2, 7, VOCABULARY + 1)
    logits = torch.zeros(4, VOCABULARY)
    logits[:, 7], logits[:, 2], logits[:, 5] = 60.0, 50.0, 40.0
    draws = [
        Draw(Sampling(temperature=temperature, min_tokens=5, end_token_ids=ends), position)
        for temperature in (0.0, 1.0)
        for position in (4, 5)
    ]
    assert sample(logits, draws) == [5, 7, 5, 7]


def test_a_row_in_which_min_tokens_leaves_nothing_says_so() -> None:
    logits = torch.full((1, VOCABULARY), float("-inf"))
    logits[0, 2] = 1.0
    assert sample(logits, [Draw(Sampling(min_tokens=1, end_token_ids=(2,)), 0)]) == [FailureReason.NO_CANDIDATE]


def test_equal_scores_are_cut_by_token_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates and the full sort agree on who is in."""
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 100:110] = 5.0
    draws = [Draw(Sampling(top_k=10, seed=4), 0)]
    few = sample(logits.clone(), draws)
    monkeypatch.setattr(sampling, "CANDIDATES", VOCABULARY)
    assert sample(logits.clone(), draws) == few
    assert few[0] in range(100, 110)
