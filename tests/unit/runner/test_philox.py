"""Philox gives the published numbers, and one independent number for each output position."""

import pytest

from services.runner.philox import Words, philox4x32, uniform_draw

# The known-answer tests of the Random123 distribution for philox4x32 with ten rounds.
KNOWN_ANSWERS: list[tuple[Words, tuple[int, int], Words]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_words_equal_the_published_ones(counter: Words, key: tuple[int, int], expected: Words) -> None:
    assert philox4x32(counter, key) == expected


def test_draws_are_the_same_every_time_and_differ_by_seed_choice_and_position() -> None:
    places = [(seed, choice, position) for seed in (0, 1, 2**63) for choice in (0, 1) for position in (0, 1, 2**33)]
    draws = [uniform_draw(*place) for place in places]
    assert draws == [uniform_draw(*place) for place in places]
    assert len(set(draws)) == len(places)


def test_draws_are_spread_evenly_over_the_unit_interval() -> None:
    draws = [uniform_draw(7, 0, position) for position in range(4000)]
    assert all(0 <= draw < 1 for draw in draws)
    shares = [sum(part / 4 <= draw < (part + 1) / 4 for draw in draws) / len(draws) for part in range(4)]
    assert all(abs(share - 0.25) < 0.03 for share in shares)
