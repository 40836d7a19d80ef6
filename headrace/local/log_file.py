"""A child's log: where it goes, and its last lines in readable form."""

import json
from pathlib import Path
from typing import Any

_TAIL_BYTES = 64 * 1024
_PLAIN = ("ts", "level", "event", "service", "trace_id", "span_id", "exception", "mem_used", "gpu_util", "batch_size")


class LogFile:
    """The output of one service since its last start; the run before is kept beside it as NAME.log.1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0
        if path.exists():
            path.replace(path.with_suffix(".log.1"))

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
