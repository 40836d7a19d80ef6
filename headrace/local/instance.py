"""Runs one instance from its first check to its last process's end."""

import asyncio
import secrets
import signal
from collections.abc import Coroutine
from pathlib import Path

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.news import Failed
from headrace.local.plan import UpOptions, plan_stack
from headrace.local.ports import Ports, require_free
from headrace.local.restarting import TRY_AGAIN_SIGNAL
from headrace.local.state import read_state
from headrace.local.supervisor import Supervisor, Tell


async def run_instance(options: UpOptions, tell: Tell) -> int:
    """Runs until SIGINT, SIGTERM or SIGHUP; returns the exit code, having told why when it is not 0."""
    data_dir = DataDir(Path(options.data_dir))
    stop_asked = _stop_signals()
    try:
        data_dir.create()
        with data_dir.locked():
            _require_no_orphans(data_dir)
            require_free(Ports(options.port_base), options.runners)
            with data_dir.socket_folder() as sockets:
                await _run(options, data_dir, sockets, tell, stop_asked)
    except LocalFailure as failure:
        tell(Failed(str(failure)))
        return 1
    return 0


async def _run(options: UpOptions, data_dir: DataDir, sockets: Path, tell: Tell, stop_asked: asyncio.Event) -> None:
    token = secrets.token_hex(16)
    data_dir.write_secret(data_dir.cluster_token_file, token)
    supervisor = Supervisor(plan_stack(options, data_dir, sockets, token), data_dir, sockets, tell)
    asyncio.get_running_loop().add_signal_handler(TRY_AGAIN_SIGNAL, supervisor.try_again)
    try:
        if await _unless_stopped(supervisor.start(options.ready_seconds), stop_asked):
            await _unless_stopped(supervisor.watch(), stop_asked)
    finally:
        await supervisor.stop()


async def _unless_stopped(work: Coroutine[None, None, None], stop_asked: asyncio.Event) -> bool:
    """Runs the work; returns False, having cancelled it, when a signal comes first."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.wait([task])
    return False


def _stop_signals() -> asyncio.Event:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked.set)
    return asked


def _require_no_orphans(data_dir: DataDir) -> None:
    state = read_state(data_dir.state_file)
    if state is not None and state.running():
        raise LocalFailure(
            f"processes of an earlier instance with the data directory {data_dir.root} still run; "
            "`headrace down` ends them"
        )
