"""How many tokens a request may make: prompt and output share the context."""

from services.common.errors import ContextLengthExceeded


def output_budget(prompt_tokens: int, max_tokens: int | None, limit: int) -> int:
    """Returns the most tokens that may be generated; raises ContextLengthExceeded where the request cannot fit."""
    room = limit - prompt_tokens
    if room < 1:
        raise prompt_too_long(str(prompt_tokens), limit, prompt_tokens=prompt_tokens)
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise ContextLengthExceeded(
            "stop.max_tokens",
            f"the context holds {limit} tokens, the prompt has {prompt_tokens} and {max_tokens} more were requested "
            f"({prompt_tokens + max_tokens} together); ask for at most {room}, or shorten the prompt",
            metadata={
                "limit": str(limit),
                "prompt_tokens": str(prompt_tokens),
                "requested_tokens": str(max_tokens),
            },
        )
    return max_tokens


def prompt_too_long(how_long: str, limit: int, *, prompt_tokens: int | None = None) -> ContextLengthExceeded:
    """Builds the error of a prompt that leaves no room for a single token."""
    metadata = {"limit": str(limit)}
    if prompt_tokens is not None:
        metadata["prompt_tokens"] = str(prompt_tokens)
    return ContextLengthExceeded(
        "prompt",
        f"the context holds {limit} tokens and the prompt has {how_long}; "
        f"shorten it to at most {limit - 1}, so that 1 token can be generated",
        metadata=metadata,
    )
