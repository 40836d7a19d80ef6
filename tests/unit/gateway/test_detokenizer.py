"""Text never splits a character, and all pieces joined are the decoding of all ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_folder import byte_fallback, byte_level

from services.gateway.detokenizer import Detokenizer
from services.gateway.tokenizer import TextTokenizer

BYTES = TextTokenizer(byte_level((b"\xf0\x9f\x98", b" hello", b" world")))
FALLBACK = TextTokenizer(byte_fallback())


def pieces_of(tokenizer: TextTokenizer, token_ids: list[int], *, skips_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(
        lambda ids: tokenizer.decode(ids, skips_special=skips_special),
        byte_token_ids=tokenizer.byte_token_ids,
        is_silent=lambda token_id: tokenizer.is_silent(token_id, skips_special=skips_special),
    )
    return [*(detokenizer.feed(token_id) for token_id in token_ids), detokenizer.flush()]


def byte_ids(data: bytes) -> list[int]:
    return [4 + byte for byte in data]


def test_a_character_split_over_tokens_waits_for_its_last_byte() -> None:
    """DET-1: F0 9F 98 | 80, then C4 | 8F."""
    start = BYTES.encode_text("😀")[1]
    assert BYTES.decode([start], skips_special=True) == "�"
    pieces = pieces_of(BYTES, [start, 4 + 0x80, 4 + 0xC4, 4 + 0x8F])
    assert pieces == ["", "😀", "", "ď", ""]


def test_a_character_that_is_cut_off_ends_the_text_with_one_replacement() -> None:
    """DET-1: max_tokens cuts inside the character."""
    assert pieces_of(BYTES, byte_ids(b"ok\xf0\x9f\x98")) == ["o", "k", "", "", "", "�"]


def test_a_special_token_between_two_halves_does_not_part_them() -> None:
    assert "".join(pieces_of(BYTES, [4 + 0xC4, 1, 4 + 0x8F])) == "ď"


def test_a_space_after_a_special_token_is_kept() -> None:
    vocabulary = byte_fallback().get_vocab()
    hello, world = vocabulary["▁hello"], vocabulary["▁world"]
    assert "".join(pieces_of(FALLBACK, [hello, 1, world])) == "hello world"


def test_a_newline_made_of_a_byte_token_is_kept() -> None:
    ids = [token for token in FALLBACK.encode_text("hello\nhello") if token != 0]
    assert "".join(pieces_of(FALLBACK, ids)) == FALLBACK.decode(ids, skips_special=True)


def test_a_broken_run_of_byte_tokens_is_decoded_as_the_whole_run() -> None:
    """Tokenizers with byte fallback replace every byte of a run that is not UTF-8, also the good ones."""
    vocabulary = byte_fallback().get_vocab()
    ids = [vocabulary[f"<0x{byte:02X}>"] for byte in "你".encode() + b"\xff"] + FALLBACK.encode_text("hello")[1:]
    assert "".join(pieces_of(FALLBACK, ids)) == FALLBACK.decode(ids, skips_special=True)


def test_endless_broken_bytes_come_out_and_keep_the_window_small() -> None:
    seen: list[int] = []

    def decode(ids: list[int]) -> str:
        seen.append(len(ids))
        return BYTES.decode(ids, skips_special=True)

    detokenizer = Detokenizer(decode, is_silent=lambda _token_id: False)
    text = "".join(detokenizer.feed(4 + 0xFF) for _ in range(500)) + detokenizer.flush()
    assert text == "�" * 500
    assert max(seen) < 60


@pytest.mark.parametrize("skips_special", [True, False])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_pieces_joined_are_the_whole_decoding_of_byte_level_ids(data: st.DataObject, skips_special: bool) -> None:
    text_ids = st.text(max_size=12).map(lambda text: BYTES.encode_text(text)[1:])
    ids = st.lists(st.integers(0, 259) | st.integers(4 + 0x80, 4 + 0xFF), max_size=60)
    token_ids = data.draw(st.lists(text_ids | ids, max_size=6).map(lambda parts: [i for part in parts for i in part]))
    pieces = pieces_of(BYTES, token_ids, skips_special=skips_special)
    assert "".join(pieces) == BYTES.decode(token_ids, skips_special=skips_special)


@given(st.lists(st.integers(0, 3) | st.integers(260, 275) | st.integers(5, 260), max_size=50))
@settings(max_examples=200, deadline=None)
def test_pieces_joined_are_the_whole_decoding_of_byte_fallback_ids(token_ids: list[int]) -> None:
    pieces = pieces_of(FALLBACK, token_ids)
    assert "".join(pieces) == FALLBACK.decode(token_ids, skips_special=True)


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_valid_text_streams_without_a_replacement_character(text: str) -> None:
    if "�" in text:
        return
    for tokenizer in (BYTES, FALLBACK):
        pieces = pieces_of(tokenizer, tokenizer.encode_text(text)[1:])
        assert not any("�" in piece for piece in pieces)
