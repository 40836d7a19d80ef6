"""Philox4x32-10, a counter-based generator: the same key and counter give the same number in every process."""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Returns four 32-bit words for a counter under a key (ten rounds, as published by Salmon et al., 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & _WORD, (first >> 32) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform_draw(seed: int, choice: int, position: int) -> float:
    """Returns the one number in [0, 1) that belongs to an output position of a choice."""
    key = (seed & _WORD, (seed >> 32) & _WORD)
    counter = (position & _WORD, (position >> 32) & _WORD, choice & _WORD, 0)
    high, low, _, _ = philox4x32(counter, key)
    return float((high << 21) | (low >> 11)) * 2.0**-53
