"""What a request has produced and its gateway has not taken yet."""

import asyncio


class Outbox:
    """Collects tokens between two takes, so that a slow reader gets fewer and larger messages, never a backlog of them.

    It never holds more than max_tokens numbers, since nothing is computed beyond that.
    """

    __slots__ = ("_is_closed", "_news", "_tokens")

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._is_closed = False
        self._news = asyncio.Event()

    def put(self, token_id: int) -> None:
        """Adds one token."""
        self._tokens.append(token_id)
        self._news.set()

    def close(self) -> None:
        """Says that nothing more will come."""
        self._is_closed = True
        self._news.set()

    async def take(self) -> tuple[list[int], bool]:
        """Waits for news; returns the tokens since the last take, and whether they are the last."""
        await self._news.wait()
        self._news.clear()
        tokens, self._tokens = self._tokens, []
        return tokens, self._is_closed
