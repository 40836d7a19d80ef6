"""state.json: what an instance says about itself to `status`, `chat` and `down`."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import psutil

from headrace.local.failure import LocalFailure
from headrace.local.private_files import open_private

_FORMAT = 1
# How far two readings of one process's start may differ: the system clock is adjusted now and then.
_START_TOLERANCE_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one with the same number by when it started."""

    pid: int
    started_unix_seconds: float

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        """Reads a running process's identity; raises psutil.NoSuchProcess when it is gone."""
        return cls(pid, psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        """Returns the process if it still runs."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_unix_seconds) < _START_TOLERANCE_SECONDS
            return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """One recorded process."""

    name: str
    process: ProcessId
    address: str
    log: str
    model: str | None = None
    http_address: str | None = None
    metrics_address: str | None = None
    restarts: int = 0
    is_given_up: bool = False
    """Whether it died too often in a row, so that it is started again only on request."""


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceState:
    """A recorded instance."""

    supervisor: ProcessId
    model: str
    is_ready: bool
    services: tuple[ServiceState, ...]
    socket_folder: str

    def service(self, name: str) -> ServiceState | None:
        """Returns a service by name."""
        return next((service for service in self.services if service.name == name), None)

    def running(self) -> list[psutil.Process]:
        """Lists the recorded processes that still run, the supervisor first."""
        found = [self.supervisor.find(), *(service.process.find() for service in self.services)]
        return [process for process in found if process is not None]


def write_state(path: Path, state: InstanceState) -> None:
    """Replaces the file in one step, so that no reader sees half of it."""
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(state)}, indent=2)
    fresh = path.with_suffix(".new")
    with open_private(fresh, "w") as file:
        file.write(text)
    os.replace(fresh, path)


def read_state(path: Path) -> InstanceState | None:
    """Reads the file; None where nothing was recorded."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LocalFailure(
            f"cannot use the data directory {path.parent}: {error.strerror}; choose another --data-dir"
        ) from error
    try:
        return _from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise LocalFailure(f"{path} cannot be read ({error}); end its processes by hand and delete it") from error


def _from_json(document: dict[str, Any]) -> InstanceState:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']} is not {_FORMAT}")
    services = [ServiceState(**{**item, "process": ProcessId(**item["process"])}) for item in document["services"]]
    return InstanceState(
        supervisor=ProcessId(**document["supervisor"]),
        model=document["model"],
        is_ready=document["is_ready"],
        services=tuple(services),
        socket_folder=document["socket_folder"],
    )
