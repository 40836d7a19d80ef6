"""A child's log: where it goes, and its last lines in readable form."""

import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

from headrace.local.private_files import open_private

_LONGEST_BYTES = 64 * 1024 * 1024
_TAIL_BYTES = 64 * 1024
_PLAIN = ("ts", "level", "event", "service", "trace_id", "span_id", "exception", "mem_used", "gpu_util", "batch_size")


class LogFile:
    """The output of one service in this run; what came before, or was too long, is kept beside it as NAME.log.1."""

    def __init__(self, path: Path, longest_bytes: int = _LONGEST_BYTES) -> None:
        self.path = path
        self._earlier = path.with_suffix(".log.1")
        self._longest_bytes = longest_bytes
        self._start = 0
        if path.exists():
            self.open().close()  # private from now on, whoever made it
            path.replace(self._earlier)

    def open(self) -> IO[bytes]:
        """Opens it for a process to append its output."""
        return open_private(self.path, "ab")

    def make_room(self) -> None:
        """Moves the content to NAME.log.1 when it has grown too long; a line written meanwhile can be lost."""
        if not self.path.exists() or self.path.stat().st_size <= self._longest_bytes:
            return
        with self.path.open("rb") as content, open_private(self._earlier, "wb") as earlier:
            shutil.copyfileobj(content, earlier)
        # Its process appends, so that it goes on at the new end.
        os.truncate(self.path, 0)
        self._start = 0

    def mark_start(self) -> None:
        """Lets `tail` begin here: what an earlier child wrote is not this one's."""
        self._start = self.path.stat().st_size if self.path.exists() else 0

    def tail(self, lines: int = 10) -> list[str]:
        """Returns the last lines since the last start, JSON ones made readable."""
        return [text for line in self._raw_lines()[-lines:] for text in readable(line).split("\n")]

    def last_event(self) -> str:
        """Returns what the service said last, with how far it is; nothing where it said nothing."""
        for line in reversed(self._raw_lines()):
            entry = _parse(line)
            if entry.get("event"):
                percent, reason = entry.get("percent"), entry.get("not_ready_reason")
                return str(reason or entry["event"]) + (f" {percent} %" if percent is not None else "")
        return ""

    def _raw_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(self._start, size - _TAIL_BYTES))
                return file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []


def readable(line: str) -> str:
    """Writes a JSON log line as a person would; leaves any other line as it is."""
    entry = _parse(line)
    if "event" not in entry:
        return line
    rest = [f"{key}={value}" for key, value in entry.items() if key not in _PLAIN and value is not None]
    text = "  ".join([str(entry.get("level", "")), str(entry["event"]), *rest]).strip()
    exception = entry.get("exception")
    return f"{text}\n{exception}" if exception else text


def _parse(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
