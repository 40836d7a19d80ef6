"""Client text that goes into a message: never more of it than a person reads."""

_CUT = "…"


def brief(text: str, characters: int) -> str:
    """Returns the text, its end cut off where it is longer than that many characters."""
    return text if len(text) <= characters else text[: characters - len(_CUT)] + _CUT
