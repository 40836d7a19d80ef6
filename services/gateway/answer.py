"""One choice's answer while it is made: tokens come in, pieces of text go out as fast as the client reads them."""

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from services.gateway.detokenizer import Detokenizer
from services.gateway.stop_strings import StopStrings


class Finish(enum.Enum):
    """How an answer ended well; everything else is an error."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a client gets next: text, the ids that it accounts for, and on the last piece how the answer ended."""

    sequence: int
    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None = None
    stop_matched: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """What ends an answer's text besides its tokens running out."""

    min_tokens: int = 0
    """Stop strings that are complete before this many tokens do not count; one may begin among them."""
    hidden_end_ids: Collection[int] = ()
    """Ids that end the answer and leave no text."""


class Answer:
    """Collects pieces until they are taken, so a slow reader gets fewer and longer ones, and never loses any."""

    def __init__(self, detokenizer: Detokenizer, stop_strings: StopStrings, rules: AnswerRules) -> None:
        self._detokenizer = detokenizer
        self._stop_strings = stop_strings
        self._rules = rules
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._finish: Finish | None = None
        self._is_taken = False
        self._sequence = 0
        self.completion_tokens = 0
        self.stop_matched = ""

    @property
    def is_stopped(self) -> bool:
        """Tells whether a stop string matched: later tokens are not part of the answer."""
        return bool(self.stop_matched)

    def feed(self, token_ids: Sequence[int]) -> None:
        """Takes new tokens, up to the one that completes a stop string."""
        for token_id in token_ids:
            if self.is_stopped:
                return
            self._token_ids.append(token_id)
            self.completion_tokens += 1
            if token_id not in self._rules.hidden_end_ids:
                self._add(self._detokenizer.feed(token_id))

    def finish(self, finish: Finish) -> None:
        """Ends the answer: no more tokens come, what was held back goes out."""
        if not self.is_stopped:
            self._add(self._detokenizer.flush())
        if not self.is_stopped:
            self._texts.append(self._stop_strings.flush())
        self._finish = Finish.STOP if self.is_stopped else finish

    def take(self) -> Piece | None:
        """Hands over what has gathered; None while there is nothing to say, and after the last piece."""
        if self._is_taken or (self._finish is None and not any(self._texts)):
            return None
        piece = Piece(self._sequence, "".join(self._texts), tuple(self._token_ids), self._finish, self.stop_matched)
        self._sequence += 1
        self._texts, self._token_ids = [], []
        self._is_taken = self._finish is not None
        return piece

    def _add(self, text: str) -> None:
        if not text:
            return
        scan = self._stop_strings.feed(text, may_match=self.completion_tokens >= self._rules.min_tokens)
        self._texts.append(scan.text)
        self.stop_matched = scan.matched or ""
