"""Turns token ids into text as they come: never half a character, and all pieces joined are the whole decoding."""

from collections.abc import Callable, Collection

_REPLACEMENT = "�"
# The longest run of byte tokens that is held back; see Detokenizer.
_BYTE_RUN = 64
# How many ids may wait for the rest of a character before the window is cut; a character has 4 bytes at most.
_WAITING_IDS = 32
_CHARACTER_BYTES = 4

Decode = Callable[[list[int]], str]


class Detokenizer:
    """Decodes a sliding window of ids and gives out what the window's last token added.

    The window begins with the ids of the piece before, because many tokenizers write a token differently (a space
    more, a space less) at the beginning of a text. A piece that ends within a character waits for the rest of it.
    Tokenizers with byte fallback decode a run of byte tokens as one: a wrong byte at its end turns all of it into
    replacement characters. So a run waits until it has ended, or is too long to be waited for.
    """

    def __init__(
        self, decode: Decode, *, is_silent: Callable[[int], bool], byte_token_ids: Collection[int] = ()
    ) -> None:
        self._decode = decode
        self._byte_token_ids = byte_token_ids
        self._is_silent = is_silent
        self._ids: list[int] = []
        self._prefix_ids = 0
        self._prefix_text = ""
        self._byte_run = 0

    def feed(self, token_id: int) -> str:
        """Takes the next id; returns the text that is certain now."""
        if self._is_silent(token_id):
            return ""
        self._ids.append(token_id)
        self._byte_run = self._byte_run + 1 if token_id in self._byte_token_ids else 0
        if 0 < self._byte_run < _BYTE_RUN:
            return ""
        text = self._decode(self._ids)
        if text.endswith(_REPLACEMENT):
            return self._cut(text) if len(self._ids) - self._prefix_ids > _WAITING_IDS else ""
        return self._advance(text) if len(text) > len(self._prefix_text) else ""

    def flush(self) -> str:
        """Returns what was held back: no more ids come."""
        return self._advance(self._decode(self._ids)) if self._ids else ""

    def _advance(self, text: str) -> str:
        piece = text[len(self._prefix_text) :]
        self._ids = self._ids[self._prefix_ids :]
        self._prefix_ids = len(self._ids)
        self._prefix_text = self._decode(self._ids)
        return piece

    def _cut(self, text: str) -> str:
        """Gives out the beginning of a long run of broken characters, where a cut does not change the decoding."""
        last = len(self._ids) - _CHARACTER_BYTES
        for cut in range(last, last - _CHARACTER_BYTES, -1):
            head = self._decode(self._ids[:cut])
            if head + self._decode(self._ids[cut:]) == text:
                piece = head[len(self._prefix_text) :]
                self._ids, self._prefix_ids, self._prefix_text = self._ids[cut:], 0, ""
                return piece
        return ""
