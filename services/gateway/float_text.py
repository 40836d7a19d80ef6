"""Numbers in messages as whoever sent them wrote them, although the wire made them 32-bit."""

import struct

_FEWEST_DIGITS, _MOST_DIGITS = 6, 9


def shortest_float32(value: float) -> str:
    """Returns the shortest decimal that names this 32-bit number: 2.1, where its exact value is 2.0999999046."""
    for digits in range(_FEWEST_DIGITS, _MOST_DIGITS + 1):
        text = f"{value:.{digits}g}"
        if _rounded(float(text)) == value:
            return text
    return repr(value)


def _rounded(value: float) -> float | None:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return None
