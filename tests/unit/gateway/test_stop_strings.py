"""Stop strings over piece boundaries: nothing leaks, nothing is held longer than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.stop_strings import StopScan, StopStrings

TOKENS = ["DEF", "G", "HI", "J", "K"]


def run(pieces: list[str], stops: list[str], *, includes_match: bool = False) -> tuple[list[str], str | None]:
    scanner = StopStrings(stops, includes_match=includes_match)
    out = []
    for piece in pieces:
        scan = scanner.feed(piece)
        out.append(scan.text)
        if scan.matched is not None:
            return out, scan.matched
    return [*out, scanner.flush()], None


def test_a_stop_string_over_several_tokens_leaves_no_text() -> None:
    """STOP-1, run 1."""
    pieces, matched = run(TOKENS, ["DEFGHIJ"])
    assert ("".join(pieces), matched) == ("", "DEFGHIJ")


def test_held_text_is_released_as_soon_as_it_cannot_match() -> None:
    """STOP-1, run 2."""
    pieces, matched = run(TOKENS, ["DEFX"])
    assert (pieces, matched) == (["", "DEFG", "HI", "J", "K", ""], None)


def test_held_text_is_flushed_at_the_end() -> None:
    """STOP-1, run 3."""
    assert run(["DEF"], ["DEFX"]) == (["", "DEF"], None)


def test_the_match_stays_in_the_text_where_it_was_asked_for() -> None:
    assert run(["aDEF", "GHIJK"], ["DEFGHIJ"], includes_match=True) == (["a", "DEFGHIJ"], "DEFGHIJ")


def test_only_what_can_still_match_is_held_back() -> None:
    assert run(["one\nt", "wo"], ["\n\n"])[0] == ["one\nt", "wo", ""]
    assert run(["one\n", "two"], ["\n\n"])[0] == ["one", "\ntwo", ""]


def test_of_several_stop_strings_the_one_complete_first_wins() -> None:
    assert run(["xabcd"], ["abcd", "bc"]) == (["xa"], "bc")


def test_of_two_that_are_complete_together_the_longer_wins() -> None:
    assert run(["xab", "c"], ["bc", "abc"]) == (["x", ""], "abc")


def test_a_stop_string_of_one_character_needs_no_holding_back() -> None:
    assert run(["ab", "c!d"], ["!"]) == (["ab", "c"], "!")


ALPHABET = st.sampled_from("ab")
TEXT = st.text(ALPHABET, max_size=24)


@given(TEXT, st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=4), st.data(), st.booleans())
def test_the_outcome_does_not_depend_on_where_pieces_are_cut(
    text: str, stops: list[str], data: st.DataObject, includes_match: bool
) -> None:
    """Stream and non-stream give the same text."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, by_whole = run([text], stops, includes_match=includes_match)
    parts, by_parts = run(pieces, stops, includes_match=includes_match)
    assert ("".join(parts), by_parts) == ("".join(whole), by_whole)
    by_character, _ = run(list(text), stops, includes_match=includes_match)
    assert "".join(by_character) == "".join(whole)
    if not includes_match:
        assert not any(stop in "".join(whole) for stop in stops)


def test_what_was_complete_before_matches_counted_stays_text_while_it_begins_something_longer() -> None:
    scanner = StopStrings(["DE", "FDEX"], includes_match=False)
    assert scanner.feed("DEFDE", may_match=False).text == "DE"
    assert scanner.feed("FDE") == StopScan("FDEF", "DE")


@given(TEXT, st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=4), st.integers(0, 24), st.data())
def test_the_first_match_that_is_complete_late_enough_ends_the_text(
    text: str, stops: list[str], early: int, data: st.DataObject
) -> None:
    """Every cut gives the text up to the match that a reader would find who looks at every end after the early ones."""
    cuts = sorted({min(early, len(text)), *data.draw(st.lists(st.integers(0, len(text)), max_size=8))})
    scanner = StopStrings(stops, includes_match=True)
    out = ""
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        scan = scanner.feed(text[start:end], may_match=end > early)
        out += scan.text
        if scan.matched is not None:
            break
    else:
        out += scanner.flush()
    ends = [end for end in range(early + 1, len(text) + 1) if text[:end].endswith(tuple(stops))]
    assert out == text[: min(ends, default=len(text))]
