"""Restarts one service: it is asked to end, and its supervisor starts it again."""

import contextlib
import signal
import time
from collections.abc import Callable

import psutil

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.health import Health, check_health
from headrace.local.state import InstanceState, ProcessId, ServiceState, read_state
from headrace.local.stopping import ask_to_end

# Tells a supervisor to start again what it has given up.
TRY_AGAIN_SIGNAL = signal.SIGUSR1

_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.1


def restart_service(data_dir: DataDir, state: InstanceState, name: str, say: Callable[[str], None]) -> int:
    """Returns the new process's pid once it serves."""
    old = state.service(name)
    if old is None:
        known = ", ".join(service.name for service in state.services)
        raise LocalFailure(f"no service {name} in this instance; there are {known}")
    _require_supervisor(state.supervisor, name)
    _ask(state, old, say)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        now = read_state(data_dir.state_file)
        if now is None:
            raise LocalFailure(f"the instance ended while {name} was restarting; see {data_dir.logs}")
        _require_supervisor(now.supervisor, name)
        fresh = now.service(name)
        is_new = fresh is not None and fresh.process != old.process
        if fresh is not None and fresh.is_given_up and (is_new or not old.is_given_up):
            raise LocalFailure(f"{name} died again and again, so the supervisor has given it up; see {fresh.log}")
        if fresh is not None and is_new and check_health(name, fresh.address) is Health.SERVING:
            return fresh.process.pid
        time.sleep(_POLL_SECONDS)
    raise LocalFailure(f"{name} does not serve again after {_TIMEOUT_SECONDS:g} s; see {old.log}")


def _ask(state: InstanceState, service: ServiceState, say: Callable[[str], None]) -> None:
    supervisor, process = state.supervisor.find(), service.process.find()
    with contextlib.suppress(psutil.NoSuchProcess):  # what has ended meanwhile is started again without being asked
        if service.is_given_up and supervisor is not None:
            say(f"{service.name} had been given up after quick deaths; starting it again")
            supervisor.send_signal(TRY_AGAIN_SIGNAL)
        elif process is not None:
            ask_to_end(process)


def _require_supervisor(supervisor: ProcessId, name: str) -> None:
    if supervisor.find() is None:
        raise LocalFailure(
            f"the supervisor (pid {supervisor.pid}) is gone, so nothing would start {name} again; "
            "use `headrace down` and `headrace up`"
        )
