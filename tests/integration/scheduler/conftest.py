"""What the scheduler's integration tests share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for UNIX sockets."""
    with tempfile.TemporaryDirectory(prefix="hrs-", dir="/tmp") as name:
        yield Path(name)
