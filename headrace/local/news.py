"""What an instance reports while it starts and runs; written as JSON lines where another process shows it."""

import dataclasses
import json


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """A service has reached another stage: starting, loading, ready, restarting, gave up, stopped."""

    service: str
    phase: str
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The instance has answered its first question."""

    model: str
    grpc_address: str
    http_address: str
    logs: str
    answer: str
    """Empty where the gateway wants an API key that nobody gave."""
    answer_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """The instance has ended, or never began, for this reason."""

    text: str


News = Phase | Notice | Serving | Failed

_KINDS = {kind.__name__: kind for kind in (Phase, Notice, Serving, Failed)}


def to_line(news: News) -> str:
    """Writes one piece of news as one line."""
    return json.dumps({"kind": type(news).__name__, **dataclasses.asdict(news)})


def from_line(line: str) -> News:
    """Reads what to_line wrote."""
    document = json.loads(line)
    kind = _KINDS[document.pop("kind")]
    news: News = kind(**document)
    return news
