"""Reads server-sent events in tests."""

import json
from typing import Any


def events_of(body: str) -> list[dict[str, Any] | str]:
    """Returns the events of a whole stream: JSON, and "[DONE]" as text; comments are left out."""
    frames = [part for part in body.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") for part in frames), frames
    texts = [part.removeprefix("data: ") for part in frames]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]
