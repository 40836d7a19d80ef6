"""`headrace down` against real processes that do not behave."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.local import stopping
from headrace.local.data_dir import DataDir
from headrace.local.state import InstanceState, ProcessId, ServiceState, write_state
from headrace.local.stopping import stop_instance

# Each says that its handler is in place.
OBEDIENT = "import signal, sys; print(flush=True); signal.pause()"
STOPS_ITSELF = (
    "import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP)); "
    "print(flush=True)\nwhile True: signal.pause()"
)
SLOW = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(time.sleep(0.3))); "
    "print(flush=True); signal.pause()"
)

Processes = list["subprocess.Popen[bytes]"]


@pytest.fixture
def processes() -> Iterator[Processes]:
    started: Processes = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(processes: Processes, script: str) -> ProcessId:
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return ProcessId.of(process.pid)


def record(root: Path, supervisor: ProcessId, **services: ProcessId) -> DataDir:
    data_dir = DataDir(root)
    data_dir.create()
    states = tuple(ServiceState(name, process, "127.0.0.1:1", "/log") for name, process in services.items())
    write_state(data_dir.state_file, InstanceState(supervisor, "m", True, states, str(root / "run")))
    return data_dir


def test_a_stopped_supervisor_goes_on_and_ends_at_once(tmp_path: Path, processes: Processes) -> None:
    supervisor = start(processes, OBEDIENT)
    os.kill(supervisor.pid, signal.SIGSTOP)
    said: list[str] = []
    assert stop_instance(record(tmp_path, supervisor), said.append)
    assert processes[0].wait(5) == -signal.SIGTERM
    assert said == []


def test_a_supervisor_that_stays_stopped_is_killed_without_the_long_wait(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_QUIET_SECONDS", 0.1)
    supervisor = start(processes, STOPS_ITSELF)
    said: list[str] = []
    assert stop_instance(record(tmp_path, supervisor), said.append)
    assert processes[0].wait(5) == -signal.SIGKILL
    assert said[-1] == f"the supervisor (pid {supervisor.pid}) is a stopped process and is killed"


def test_a_wait_for_the_supervisor_is_said(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_QUIET_SECONDS", 0.0)
    supervisor = start(processes, SLOW)
    said: list[str] = []
    assert stop_instance(record(tmp_path, supervisor), said.append)
    assert processes[0].wait(5) == 0
    assert said == [f"waiting up to 90 s for the supervisor (pid {supervisor.pid}) to end its services"]


def test_orphans_end_in_the_order_of_a_planned_stop(tmp_path: Path, processes: Processes) -> None:
    gone = start(processes, OBEDIENT)
    psutil.Process(gone.pid).kill()
    processes[0].wait()
    orphans = {name: start(processes, OBEDIENT) for name in ("redis", "runner-0", "gateway")}
    said: list[str] = []
    assert stop_instance(record(tmp_path, gone, **orphans), said.append)
    assert [line.split()[1] for line in said] == ["gateway", "runner-0", "redis"]
    assert all(process.find() is None for process in orphans.values())
