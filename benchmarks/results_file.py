"""Writes a measurement with everything that is needed to make it again: machine, date, command, both arms."""

import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"

_PACKAGES = ("torch", "transformers", "grpcio", "protobuf", "redis")


def describe_machine() -> dict[str, object]:
    """Returns what the figures depend on: processor, cores, memory, versions."""
    versions = {name: metadata.version(name) for name in _PACKAGES}
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
    }


def write_result(name: str, arms: Mapping[str, Sequence[float]], unit: str, **facts: object) -> Path:
    """Writes results/DATE-NAME.json with every repetition and the median of each arm; returns its path."""
    now = datetime.datetime.now(datetime.UTC)
    record = {
        "name": name,
        "date": now.isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *map(_without_folder, sys.argv[1:])]),
        "machine": describe_machine(),
        "unit": unit,
        "arms": {
            arm: {"runs": [round(value, 2) for value in values], "median": round(statistics.median(values), 2)}
            for arm, values in arms.items()
        },
        **facts,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y-%m-%d}-{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def _without_folder(argument: str) -> str:
    # Where a model lies on this machine helps nobody to make the measurement again.
    return Path(argument).name if Path(argument).is_absolute() else argument


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
