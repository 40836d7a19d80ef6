"""The cheap bound never refuses a prompt that would fit."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_folder import byte_fallback, byte_level
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from services.gateway.token_bound import longest_token_bytes

TOKENIZERS = [
    tokenizer.backend_tokenizer for tokenizer in (byte_level((b" hello", b"\xf0\x9f\x98\x80")), byte_fallback())
]


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_text_has_fewer_tokens_than_the_bound_says(text: str) -> None:
    for tokenizer in TOKENIZERS:
        longest = longest_token_bytes(tokenizer.to_str())
        assert longest is not None
        assert len(tokenizer.encode(text, add_special_tokens=False)) >= len(text.encode()) / longest


def test_composition_shrinks_a_text_by_a_known_factor() -> None:
    tokenizer = Tokenizer.from_str(byte_level().backend_tokenizer.to_str())
    plain = longest_token_bytes(tokenizer.to_str())
    assert plain is not None
    tokenizer.normalizer = normalizers.NFC()
    assert longest_token_bytes(tokenizer.to_str()) == 4 * plain


def test_a_tokenizer_that_may_drop_text_has_no_bound() -> None:
    whitespace = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    whitespace.pre_tokenizer = pre_tokenizers.Whitespace()
    assert longest_token_bytes(whitespace.to_str()) is None
    greedy = Tokenizer.from_str(byte_level().backend_tokenizer.to_str())
    greedy.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert longest_token_bytes(greedy.to_str()) is None
    stripping = Tokenizer.from_str(byte_level().backend_tokenizer.to_str())
    stripping.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    assert longest_token_bytes(stripping.to_str()) is None
