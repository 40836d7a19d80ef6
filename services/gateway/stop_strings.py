"""Finds stop strings in text that arrives in pieces, and holds back only what can still become one."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopScan:
    """Text that may go out, and the stop string that ended it, if one did."""

    text: str
    matched: str | None = None


class StopStrings:
    """Scans a stream of text. The outcome does not depend on where the pieces are cut."""

    def __init__(self, strings: Sequence[str], *, includes_match: bool) -> None:
        self._strings = tuple(strings)
        self._includes_match = includes_match
        self._held = ""

    def feed(self, text: str, *, may_match: bool = True) -> StopScan:
        """Takes a piece; returns what is certain. After a match nothing more may be fed.

        Where it may not match, what is complete within the piece is passed over, what only begins there is not.
        """
        passed = len(self._held)
        text = self._held + text
        match = self._first_match(text, passed) if may_match else None
        if match is not None:
            start, string = match
            self._held = ""
            return StopScan(text[: start + len(string)] if self._includes_match else text[:start], string)
        held = self._longest_beginning(text)
        self._held = text[len(text) - held :]
        return StopScan(text[: len(text) - held])

    def flush(self) -> str:
        """Returns what was held back: the text ended without completing a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str, passed: int) -> tuple[int, str] | None:
        """Finds the match that is complete first, as a reader character by character would; then the longest.

        One that is complete within the characters that had passed did not count when they came.
        """
        found = [(text.find(string, max(0, passed + 1 - len(string))), string) for string in self._strings]
        matches = [(start, string) for start, string in found if start >= 0]
        return min(matches, key=lambda match: (match[0] + len(match[1]), match[0]), default=None)

    def _longest_beginning(self, text: str) -> int:
        """Returns how many last characters are the beginning of a stop string."""
        longest = max((len(string) for string in self._strings), default=0) - 1
        for length in range(min(longest, len(text)), 0, -1):
            ending = text[-length:]
            if any(string.startswith(ending) for string in self._strings if len(string) > length):
                return length
        return 0
