"""Prompt and output share the context, to the token."""

import pytest

from services.common.errors import ContextLengthExceeded
from services.gateway.limits import output_budget


def test_a_request_that_fills_the_context_exactly_is_accepted() -> None:
    """VAL-4."""
    assert output_budget(8, 2040, 2048) == 2040
    assert output_budget(2047, 1, 2048) == 1


@pytest.mark.parametrize("requested", [2041, 2045])
def test_one_token_too_many_is_refused_with_all_three_numbers(requested: int) -> None:
    """VAL-4."""
    with pytest.raises(ContextLengthExceeded) as refusal:
        output_budget(8, requested, 2048)
    for number in ("2048", "8", str(requested), "2040"):
        assert number in refusal.value.message
    assert refusal.value.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert refusal.value.metadata == {"limit": "2048", "prompt_tokens": "8", "requested_tokens": str(requested)}


def test_without_max_tokens_what_is_left_may_be_generated() -> None:
    """VAL-4."""
    assert output_budget(2047, None, 2048) == 1
    assert output_budget(8, None, 2048) == 2040


@pytest.mark.parametrize("prompt_tokens", [2048, 2049])
def test_a_prompt_that_leaves_no_room_is_refused(prompt_tokens: int) -> None:
    """VAL-4."""
    for max_tokens in (None, 1):
        with pytest.raises(ContextLengthExceeded, match=f"{prompt_tokens}.*2047"):
            output_budget(prompt_tokens, max_tokens, 2048)
