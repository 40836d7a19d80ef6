"""Waiting for what gives no sign: the state of another process or of code that has no event for it."""

import asyncio
import time
from collections.abc import Callable


async def until(
    condition: Callable[[], bool], seconds: float = 10.0, failure: str = "the condition did not come true"
) -> None:
    """Polls until the condition holds; fails when that takes longer than so many seconds."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"{failure} within {seconds} s"
        await asyncio.sleep(0.005)
