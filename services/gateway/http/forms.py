"""The JSON objects of the two kinds of completion."""

from typing import Any, Protocol

Json = dict[str, Any]


class Form(Protocol):
    """One kind of completion: how its pieces and its whole answers look."""

    id_prefix: str
    whole_object: str
    piece_object: str

    def opening(self, index: int) -> Json | None:
        """Returns a choice's first piece, before any text."""

    def piece(self, index: int, text: str, token_ids: list[int] | None) -> Json:
        """Returns a piece with text."""

    def closing(self, index: int, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns a choice's last piece."""

    def whole(self, index: int, text: str, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns a complete choice."""


class ChatForm:
    """chat.completion."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    piece_object = "chat.completion.chunk"

    def opening(self, index: int) -> Json | None:
        """Returns the piece that names the role."""
        return _choice(index, {"delta": {"role": "assistant", "content": ""}}, None, None)

    def piece(self, index: int, text: str, token_ids: list[int] | None) -> Json:
        """Returns a delta of the content."""
        return _choice(index, {"delta": {"content": text}}, None, token_ids)

    def closing(self, index: int, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns the empty delta that says why the choice ended."""
        return _choice(index, {"delta": {}}, finish_reason, token_ids)

    def whole(self, index: int, text: str, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns a choice with its message."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return _choice(index, {"message": message}, finish_reason, token_ids)


class TextForm:
    """text_completion."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    piece_object = "text_completion"

    def opening(self, index: int) -> Json | None:
        """Returns nothing: plain text has no role."""
        del index
        return None

    def piece(self, index: int, text: str, token_ids: list[int] | None) -> Json:
        """Returns a piece of the text."""
        return _choice(index, {"text": text}, None, token_ids)

    def closing(self, index: int, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns the empty piece that says why the choice ended."""
        return _choice(index, {"text": ""}, finish_reason, token_ids)

    def whole(self, index: int, text: str, finish_reason: str, token_ids: list[int] | None) -> Json:
        """Returns a choice with its text."""
        return _choice(index, {"text": text}, finish_reason, token_ids)


def _choice(index: int, content: Json, finish_reason: str | None, token_ids: list[int] | None) -> Json:
    choice: Json = {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}
    if token_ids is not None:
        choice["token_ids"] = token_ids
    return choice
