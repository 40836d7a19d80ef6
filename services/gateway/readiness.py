"""Whether this gateway can answer, and why not: the one truth behind health, /health and GetStatus."""

from collections.abc import Callable


class Readiness:
    """Ready means: a runner with our tokenizer is attached, and no shutdown has begun."""

    def __init__(self, not_ready_reason: Callable[[], str | None]) -> None:
        self._not_ready_reason = not_ready_reason
        self._is_draining = False

    @property
    def reason(self) -> str | None:
        """Says why the gateway is not ready; None when it is."""
        return "shutting down" if self._is_draining else self._not_ready_reason()

    @property
    def is_ready(self) -> bool:
        """Tells whether a request can be answered now."""
        return self.reason is None

    def start_draining(self) -> None:
        """Marks the beginning of a shutdown."""
        self._is_draining = True
