"""Ends a recorded instance: its supervisor does it; what an orphaned instance left is ended one by one."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from headrace.local.data_dir import DataDir
from headrace.local.state import InstanceState, ProcessId, read_state

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
    supervisor.terminate()
    if not _gone(identity, _SUPERVISOR_SECONDS):
        say(f"the supervisor (pid {identity.pid}) did not end in {_SUPERVISOR_SECONDS:g} s and is killed")
        supervisor.kill()
        _gone(identity, _ORPHAN_SECONDS)


def _stop_orphans(state: InstanceState, say: Callable[[str], None]) -> None:
    for service in state.services:
        process = service.process.find()
        if process is None:
            continue
        say(f"ending {service.name} (pid {service.process.pid}), whose supervisor is gone")
        process.terminate()
        if not _gone(service.process, _ORPHAN_SECONDS):
            # Each service leads a session of its own, so its group is all that it started.
            os.killpg(service.process.pid, signal.SIGKILL)
            _gone(service.process, _ORPHAN_SECONDS)


def _gone(identity: ProcessId, timeout_seconds: float) -> bool:
    # Polled rather than waited for: where nobody reaps orphans a dead process stays behind as a zombie.
    deadline = time.monotonic() + timeout_seconds
    while identity.find() is not None:
        if time.monotonic() > deadline:
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
