"""Checks of text that protobuf would refuse, for callers that come by other ways than gRPC."""

from services.common.errors import InvalidRequest


def require_unicode(field: str, text: str) -> str:
    """Returns the text; raises InvalidRequest where it holds half of a surrogate pair, which no UTF-8 can say."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            field, f"character {error.start} is a lone surrogate (U+{ord(text[error.start]):04X}); send valid Unicode"
        ) from None
    return text
