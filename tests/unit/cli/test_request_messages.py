"""What a caller of the client gives becomes a message, or an InvalidRequest that names the field."""

from typing import Any

import pytest

import headrace
from headrace.request_messages import (
    LONGEST_TIMEOUT_SECONDS,
    call_timeout,
    cancel_message,
    common_fields,
    conversation_message,
    prompt_message,
)

HALF_A_PAIR = "\ud83d"


@pytest.mark.parametrize("stop", ["###", ["###"], ("###",), iter(["###"])])
def test_a_stop_string_is_one_string_with_or_without_a_list(stop: Any) -> None:
    assert list(common_fields({"stop": stop})["stop"].stop) == ["###"]


def test_an_option_that_is_none_stays_absent() -> None:
    fields = common_fields({"max_tokens": None, "seed": None, "stop": None})  # type: ignore[typeddict-item]
    assert not fields["stop"].HasField("max_tokens")
    assert not fields["sampling"].HasField("seed")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seed": -1}, "sampling.seed"),
        ({"seed": 10**5000}, "sampling.seed"),
        ({"temperature": "hot"}, "sampling.temperature"),
        ({"temperature": 10**400}, "sampling.temperature"),
        ({"max_tokens": -1}, "stop.max_tokens"),
        ({"max_tokens": 1.5}, "stop.max_tokens"),
        ({"stop": [HALF_A_PAIR]}, "stop.stop"),
        ({"stop": b"##"}, "stop.stop"),
        ({"stop": 5}, "stop.stop"),
        ({"model": "\udcff"}, "options.model"),
        ({"model": 3}, "options.model"),
        ({"priority": 2**40}, "options.priority"),
    ],
)
def test_an_option_that_no_message_can_hold_is_an_invalid_request(options: Any, field: str) -> None:
    with pytest.raises(headrace.InvalidRequest) as failure:
        common_fields(options)
    assert failure.value.code == "INVALID_ARGUMENT"
    assert [violation.field for violation in failure.value.violations] == [field]
    assert failure.value.message.startswith(f"{field}: ")


def test_the_error_of_an_option_says_what_would_be_right() -> None:
    with pytest.raises(headrace.InvalidRequest, match="out of range: -5; give a whole number from 0 to 4294967295"):
        common_fields({"max_tokens": -5})
    with pytest.raises(headrace.InvalidRequest, match="not text; give a list: each item is text"):
        common_fields({"stop": [5]})  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (b"abc", "prompt"),
        (bytearray(b"abc"), "prompt"),
        (None, "prompt"),
        ([-1], "prompt.token_ids"),
        ([2**32], "prompt.token_ids"),
        (["a"], "prompt.token_ids"),
        (5, "prompt.token_ids"),
        (HALF_A_PAIR, "prompt.text"),
    ],
)
def test_a_prompt_that_is_neither_text_nor_token_ids_is_an_invalid_request(prompt: Any, field: str) -> None:
    with pytest.raises(headrace.InvalidRequest) as failure:
        prompt_message(prompt)
    assert failure.value.violations[0].field == field


@pytest.mark.parametrize(
    ("conversation", "field"),
    [
        (b"abc", "prompt.messages"),
        (None, "prompt.messages"),
        ({"role": "user", "content": "hello"}, "prompt.messages"),
        (["hello"], "prompt.messages[0]"),
        ([{"role": "user"}], "prompt.messages[0].content"),
        ([{"role": "user", "content": "a"}, {"content": "b"}], "prompt.messages[1].role"),
        ([{"role": "user", "content": [{"type": "text"}]}], "prompt.messages[0].content"),
        ([{"role": "robot", "content": "a"}], "prompt.messages[0].role"),
        ([{"role": [], "content": "a"}], "prompt.messages[0].role"),
        (HALF_A_PAIR, "prompt.messages[0].content"),
    ],
)
def test_a_malformed_conversation_is_an_invalid_request(conversation: Any, field: str) -> None:
    with pytest.raises(headrace.InvalidRequest) as failure:
        conversation_message(conversation)
    assert failure.value.violations[0].field == field


@pytest.mark.parametrize("seconds", [1e12, float("inf"), 10**400], ids=["1e12", "inf", "10**400"])
def test_a_time_limit_beyond_what_grpc_counts_is_the_longest_one(seconds: float) -> None:
    """Handed on as it is, it would have passed at once."""
    assert call_timeout(seconds) == LONGEST_TIMEOUT_SECONDS


@pytest.mark.parametrize("seconds", [-1, float("nan"), "10", -(10**400)], ids=["-1", "nan", "text", "-10**400"])
def test_what_is_no_time_limit_is_an_invalid_request(seconds: Any) -> None:
    with pytest.raises(headrace.InvalidRequest, match="timeout_seconds"):
        call_timeout(seconds)


def test_a_request_id_that_is_no_text_is_an_invalid_request() -> None:
    with pytest.raises(headrace.InvalidRequest, match="request_id"):
        cancel_message("\udcff")


@pytest.mark.parametrize("key", ["secret\nx", "sécret", "secret\udcff", b"secret"])
def test_a_key_that_metadata_cannot_carry_is_refused_without_showing_it(key: Any) -> None:
    with pytest.raises(headrace.InvalidRequest, match="api_key") as failure:
        headrace.Client("127.0.0.1:1", api_key=key)
    assert "cret" not in failure.value.message


def test_an_address_that_is_no_text_is_an_invalid_request() -> None:
    with pytest.raises(headrace.InvalidRequest, match="address"):
        headrace.Client("\udcff:1")
