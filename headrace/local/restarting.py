"""Restarts one service: it is asked to end, and its supervisor starts it again."""

import time

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.health import Health, check_health
from headrace.local.state import InstanceState, read_state

_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.1


def restart_service(data_dir: DataDir, state: InstanceState, name: str) -> int:
    """Returns the new process's pid once it serves."""
    old = state.service(name)
    if old is None:
        known = ", ".join(service.name for service in state.services)
        raise LocalFailure(f"no service {name} in this instance; there are {known}")
    if state.supervisor.find() is None:
        raise LocalFailure(
            f"the supervisor (pid {state.supervisor.pid}) is gone, so nothing would start {name} again; "
            "use `headrace down` and `headrace up`"
        )
    process = old.process.find()
    if process is not None:
        process.terminate()
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        now = read_state(data_dir.state_file)
        if now is None:
            raise LocalFailure(f"the instance ended while {name} was restarting; see {data_dir.logs}")
        fresh = now.service(name)
        is_new = fresh is not None and fresh.process != old.process
        if fresh is not None and is_new and check_health(name, fresh.address) is Health.SERVING:
            return fresh.process.pid
        time.sleep(_POLL_SECONDS)
    raise LocalFailure(f"{name} does not serve again after {_TIMEOUT_SECONDS:g} s; see {old.log}")
