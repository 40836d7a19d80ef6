"""A real runner process on a tiny random model, for tests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

START_SECONDS = 90.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class RunnerProcess:
    """`python -m services.runner` with its log in a file; stopped by its pid."""

    def __init__(self, folder: Path, model: Path | str, scheduler: str, **settings: str) -> None:
        self.health_address = f"unix:{folder}/runner.sock"
        self.log_path = folder / "runner.log"
        given = {
            "ID": "runner-0",
            "MODEL": str(model),
            "SCHEDULER": scheduler,
            "LISTEN": self.health_address,
            "METRICS_LISTEN": "127.0.0.1:0",
            "KV_CACHE_MIB": "16",
            "THREADS": "1",
            **settings,
        }
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        environ |= {f"HEADRACE_RUNNER_{name}": value for name, value in given.items()}
        environ["HEADRACE_PROCESS_LOG_FORMAT"] = "json"
        self._log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.runner"], env=environ, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        """Ends it without warning."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def terminate(self) -> None:
        """Asks it to end."""
        self.process.send_signal(signal.SIGTERM)

    def log(self) -> str:
        """Returns what it has written."""
        return self.log_path.read_text(errors="replace")

    def health(self) -> int | None:
        """Returns its state, or None if nobody answers."""
        with grpc.insecure_channel(self.health_address) as channel:
            try:
                stub = health_pb2_grpc.HealthStub(channel)
                return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status)
            except grpc.RpcError:
                return None

    def wait_until(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Polls a condition of the process; fails with the log when it does not come true, or the process ends."""
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, self.log()
            assert self.process.poll() is None, self.log()
            time.sleep(0.02)
