"""One child process."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import time

import psutil

from headrace.local.log_file import LogFile
from headrace.local.plan import ServiceSpec
from headrace.local.state import ProcessId


@dataclasses.dataclass(frozen=True, slots=True)
class Death:
    """How a child ended."""

    name: str
    exit_code: int
    lived_seconds: float
    log_tail: tuple[str, ...]

    @property
    def was_asked(self) -> bool:
        """Whether it ended because somebody told it to, such as `headrace restart`."""
        # A signal that comes before the process has a handler for it ends it by that signal.
        return self.exit_code in (0, -signal.SIGTERM)

    def describe(self) -> str:
        """Names the child, how it ended, and what it said last."""
        how = f"exit code {self.exit_code}" if self.exit_code >= 0 else f"signal {_signal_name(-self.exit_code)}"
        said = "\n".join(f"  {line}" for line in self.log_tail) or "  (it said nothing)"
        return f"{self.name} died after {self.lived_seconds:.1f} s with {how}; its last lines:\n{said}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _identity(pid: int) -> ProcessId:
    try:
        return ProcessId.of(pid)
    except psutil.NoSuchProcess:  # it has ended already, and `wait` will say how
        return ProcessId(pid, time.time())


class Child:
    """A running process of the instance, in a session of its own: Ctrl-C at the terminal reaches only us."""

    def __init__(self, spec: ServiceSpec, log: LogFile, process: asyncio.subprocess.Process) -> None:
        self.spec = spec
        self._log = log
        self._process = process
        self._started = time.monotonic()
        self.identity = _identity(process.pid)

    @classmethod
    async def start(cls, spec: ServiceSpec, log: LogFile) -> "Child":
        """Starts the command with its output appended to the log."""
        log.mark_start()
        with log.open() as output:
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )
        return cls(spec, log, process)

    async def wait(self) -> Death:
        """Waits for the end."""
        code = await self._process.wait()
        lived = time.monotonic() - self._started
        return Death(self.spec.name, code, lived, tuple(self._log.tail()))

    async def stop(self, grace_seconds: float) -> None:
        """Asks the process to end, and ends it and whatever it started when it takes too long."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)  # a stopped process would not see the request
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
