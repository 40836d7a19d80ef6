"""Files that only their owner can read: what users ask may stand in a log."""

import contextlib
import os
from pathlib import Path
from typing import IO, Any

_MODE = 0o600


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens a file of ours with mode 0600, which an existing one gets too."""
    return open(path, mode, opener=_open, encoding=None if "b" in mode else "utf-8")


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, _MODE)
    with contextlib.suppress(PermissionError):  # somebody else's, who lets us write it
        os.fchmod(descriptor, _MODE)
    return descriptor
