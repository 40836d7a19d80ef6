"""How a number outside its range is named, and what would be right."""

import struct

import pytest

from services.common.errors import InvalidRequest
from services.gateway.float_text import shortest_float32
from services.gateway.request import GenerationInput, Sampling, TextPrompt
from services.gateway.validation import validate


def float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


@pytest.mark.parametrize("text", ["2.1", "1.0000001", "-0.1", "1e+30", "3.4028235e+38", "16777216", "0.3333333"])
def test_number_is_shown_as_it_was_sent(text: str) -> None:
    assert shortest_float32(float32(float(text))) == text


def test_number_that_no_float32_holds_is_shown_too() -> None:
    assert shortest_float32(1e300) == "1e+300"


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(temperature=float32(2.1)), "sampling.temperature: 2.1 is out of range; use a number from 0 to 2"),
        (Sampling(top_p=float32(1.0000001)), "sampling.top_p: 1.0000001 is out of range; use a number from 0 to 1"),
        (
            Sampling(temperature=float("inf")),
            "sampling.temperature: this number is out of range; use a number from 0 to 2",
        ),
        (
            Sampling(typical_p=0.0),
            "sampling.typical_p: 0 is out of range; use a number greater than 0 and at most 1",
        ),
        (
            Sampling(repetition_penalty=-1.0),
            "sampling.repetition_penalty: -1 is out of range; use a finite number greater than 0",
        ),
    ],
)
def test_refusal_names_number_and_range(sampling: Sampling, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        validate(GenerationInput(TextPrompt("hi"), sampling=sampling))
    assert raised.value.message == message
