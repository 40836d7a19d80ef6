"""Ends a recorded instance: its supervisor does it; what an orphaned instance left is ended one by one."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from headrace.local.data_dir import DataDir
from headrace.local.plan import stop_order
from headrace.local.state import InstanceState, ProcessId, read_state

# So long a stop needs no explanation.
_QUIET_SECONDS = 3.0
# Every service may take its drain time.
_SUPERVISOR_SECONDS = 90.0
_ORPHAN_SECONDS = 10.0
_POLL_SECONDS = 0.05


def stop_instance(data_dir: DataDir, say: Callable[[str], None]) -> bool:
    """Stops what state.json records and nothing else; returns whether anything ran."""
    state = read_state(data_dir.state_file)
    if state is None:
        return False
    had_any = bool(state.running())
    _stop_supervisor(state.supervisor, say)
    _stop_orphans(state, say)
    data_dir.state_file.unlink(missing_ok=True)
    data_dir.cluster_token_file.unlink(missing_ok=True)
    _remove_socket_folder(Path(state.socket_folder))
    return had_any


def _stop_supervisor(identity: ProcessId, say: Callable[[str], None]) -> None:
    supervisor = identity.find()
    if supervisor is None:
        return
    ask_to_end(supervisor)
    if _gone(identity, _QUIET_SECONDS):
        return
    if not _is_stopped(supervisor):
        say(f"waiting up to {_SUPERVISOR_SECONDS:g} s for the supervisor (pid {identity.pid}) to end its services")
        if _gone(identity, _SUPERVISOR_SECONDS, unless=lambda: _is_stopped(supervisor)):
            return
    why = "is a stopped process" if _is_stopped(supervisor) else f"did not end in {_SUPERVISOR_SECONDS:g} s"
    say(f"the supervisor (pid {identity.pid}) {why} and is killed")
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor.kill()
    _gone(identity, _ORPHAN_SECONDS)


def _stop_orphans(state: InstanceState, say: Callable[[str], None]) -> None:
    services = {service.name: service for service in state.services}
    for name in stop_order(services):
        identity = services[name].process
        process = identity.find()
        if process is None:
            continue
        say(f"ending {name} (pid {identity.pid}), whose supervisor is gone")
        ask_to_end(process)
        if not _gone(identity, _ORPHAN_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                # Each service leads a session of its own, so its group is all that it started.
                os.killpg(identity.pid, signal.SIGKILL)
            _gone(identity, _ORPHAN_SECONDS)


def ask_to_end(process: psutil.Process) -> None:
    """Sends SIGTERM, and SIGCONT before it because a stopped process would not see it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()
        process.terminate()


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def _gone(identity: ProcessId, timeout_seconds: float, unless: Callable[[], bool] = lambda: False) -> bool:
    # Polled rather than waited for: where nobody reaps orphans a dead process stays behind as a zombie.
    deadline = time.monotonic() + timeout_seconds
    while identity.find() is not None:
        if time.monotonic() > deadline or unless():
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _remove_socket_folder(folder: Path) -> None:
    try:
        is_ours = folder.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return
    if is_ours:
        shutil.rmtree(folder, ignore_errors=True)
