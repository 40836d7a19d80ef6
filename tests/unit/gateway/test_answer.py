"""An answer's pieces: gap-free, lossless however slowly they are taken, and cut exactly at a stop string."""

from collections.abc import Collection

from services.gateway.answer import Answer, AnswerRules, Finish, Piece
from services.gateway.detokenizer import Detokenizer
from services.gateway.stop_strings import StopStrings

WORDS = {1: "DEF", 2: "G", 3: "HI", 4: "J", 5: "K", 6: "", 9: "<end>"}


def answer_of(
    stops: list[str], *, includes_match: bool = False, min_tokens: int = 0, hidden: Collection[int] = ()
) -> Answer:
    detokenizer = Detokenizer(lambda ids: "".join(WORDS[i] for i in ids), is_silent=lambda token_id: token_id == 6)
    return Answer(
        detokenizer, StopStrings(stops, includes_match=includes_match), AnswerRules(min_tokens, frozenset(hidden))
    )


def take_each(answer: Answer, token_ids: list[int], finish: Finish) -> list[Piece]:
    pieces = []
    for token_id in token_ids:
        answer.feed([token_id])
        pieces.append(answer.take())
        if answer.is_stopped:
            break
    answer.finish(finish)
    pieces.append(answer.take())
    return [piece for piece in pieces if piece is not None]


def test_each_piece_has_the_ids_it_accounts_for_and_all_ids_come_once() -> None:
    pieces = take_each(answer_of([]), [1, 6, 2, 3], Finish.LENGTH)
    assert [(p.sequence, p.text, p.token_ids) for p in pieces] == [
        (0, "DEF", (1,)),
        (1, "G", (6, 2)),
        (2, "HI", (3,)),
        (3, "", ()),
    ]
    assert [p.finish for p in pieces] == [None, None, None, Finish.LENGTH]


def test_a_slow_reader_gets_the_same_text_and_ids_in_fewer_pieces() -> None:
    """GRPC-9: coalesced without a loss."""
    answer = answer_of([])
    for token_id in (1, 2, 3, 4, 5):
        answer.feed([token_id])
    answer.finish(Finish.STOP)
    assert answer.take() == Piece(0, "DEFGHIJK", (1, 2, 3, 4, 5), Finish.STOP)
    assert answer.take() is None


def test_a_stop_string_ends_the_answer_at_the_token_that_completes_it() -> None:
    """STOP-6: ids after the match are not part of the answer, whatever step they came with."""
    answer = answer_of(["GH"])
    answer.feed([1, 2, 3, 4, 5])
    assert answer.is_stopped
    answer.finish(Finish.LENGTH)
    assert answer.take() == Piece(0, "DEF", (1, 2, 3), Finish.STOP, "GH")
    assert answer.completion_tokens == 3


def test_the_match_is_kept_where_it_was_asked_for() -> None:
    answer = answer_of(["GH"], includes_match=True)
    answer.feed([1, 2, 3])
    answer.finish(Finish.STOP)
    assert answer.take() == Piece(0, "DEFGH", (1, 2, 3), Finish.STOP, "GH")


def test_text_held_for_a_stop_string_comes_out_at_the_end() -> None:
    """STOP-1, run 3."""
    pieces = take_each(answer_of(["DEFX"]), [1], Finish.STOP)
    assert [(p.text, p.token_ids, p.stop_matched) for p in pieces] == [("DEF", (1,), "")]


def test_a_stop_string_before_min_tokens_does_not_count() -> None:
    pieces = take_each(answer_of(["G"], min_tokens=3), [1, 2, 3, 2, 5], Finish.LENGTH)
    assert "".join(p.text for p in pieces) == "DEFGHI"
    assert pieces[-1].stop_matched == "G"


def test_a_stop_string_may_begin_before_min_tokens_and_end_with_them() -> None:
    pieces = take_each(answer_of(["GHI"], min_tokens=3), [1, 2, 3, 5], Finish.LENGTH)
    assert ("".join(p.text for p in pieces), pieces[-1].stop_matched) == ("DEF", "GHI")
    pieces = take_each(answer_of(["GHI"], min_tokens=4), [1, 2, 3, 5], Finish.LENGTH)
    assert ("".join(p.text for p in pieces), pieces[-1].stop_matched) == ("DEFGHIK", "")


def test_the_token_that_ends_an_answer_is_counted_and_leaves_no_text() -> None:
    answer = answer_of([], hidden=[9])
    answer.feed([1, 9])
    answer.finish(Finish.STOP)
    assert answer.take() == Piece(0, "DEF", (1, 9), Finish.STOP)
    assert answer.completion_tokens == 2


def test_nothing_is_handed_over_while_there_is_nothing_to_say() -> None:
    answer = answer_of(["DEFX"])
    answer.feed([6])
    assert answer.take() is None
    answer.feed([1])
    assert answer.take() is None
