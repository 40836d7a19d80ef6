"""A whole instance, started by the real command as a user starts it."""

import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil

from headrace import Client
from headrace.local.failure import LocalFailure
from headrace.local.ports import Ports, require_free
from headrace.v1 import kvstore_pb2, kvstore_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc

HEADRACE = Path(sys.executable).with_name("headrace")
ROOT = Path(__file__).parents[2]


def bare_environment() -> dict[str, str]:
    """What a newcomer's shell has: nothing of Headrace in it, and no hub that could be reached."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "OTEL_"))}
    return {**kept, "HF_ENDPOINT": "http://127.0.0.1:1"}


def free_port_base() -> int:
    """Finds a base whose ports are free, below the range that outgoing connections use."""
    bases = list(range(20_000, 32_000, 200))
    random.shuffle(bases)
    for base in bases:
        try:
            require_free(Ports(base), runners=2)
        except LocalFailure:
            continue
        return base
    raise AssertionError("no free ports")


def until(condition: Callable[[], bool], timeout_seconds: float = 30.0, what: str = "the condition") -> float:
    """Polls until the condition holds; returns how long that took."""
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        assert waited < timeout_seconds, f"{what} did not come true in {timeout_seconds} s"
        time.sleep(0.02)
    return time.monotonic() - started


@dataclasses.dataclass(frozen=True, slots=True)
class Stack:
    """One instance: a data directory and a port base."""

    data_dir: Path
    port_base: int

    @property
    def ports(self) -> Ports:
        return Ports(self.port_base)

    @property
    def grpc_address(self) -> str:
        return self.ports.address("gateway")

    @property
    def http_url(self) -> str:
        return f"http://{self.ports.address('gateway HTTP')}"

    def headrace(self, *arguments: str, timeout: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Runs the command line for this instance."""
        return subprocess.run(
            [str(HEADRACE), *arguments, "--data-dir", str(self.data_dir)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=bare_environment(),
            check=False,
        )

    def up(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Starts it detached."""
        return self.headrace("up", "--detach", "--port-base", str(self.port_base), *arguments)

    def down(self) -> "subprocess.CompletedProcess[str]":
        return self.headrace("down")

    def status(self) -> dict[str, dict[str, Any]]:
        """Returns what `status --json` says, by service."""
        services = json.loads(self.headrace("status", "--json").stdout)["services"]
        return {service["name"]: service for service in services}

    def pid(self, name: str) -> int:
        """Reads a service's pid as recorded now."""
        state = json.loads((self.data_dir / "state.json").read_text())
        pid: int = next(item["process"]["pid"] for item in state["services"] if item["name"] == name)
        return pid

    def kill(self, name: str) -> int:
        """Kills a service without a warning; returns the pid that it had."""
        pid = self.pid(name)
        psutil.Process(pid).kill()
        return pid

    def until_serving(self, name: str, instead_of: int) -> None:
        """Waits until another process of that name serves."""

        def is_back() -> bool:
            return self.pid(name) != instead_of and self.status()[name]["health"] == "SERVING"

        until(is_back, 60, f"a new {name}")

    def client(self) -> Client:
        return Client(self.grpc_address)

    def complete(self, question: str, **fields: Any) -> httpx.Response:
        """Asks over OpenAI HTTP, greedily unless told otherwise."""
        body = {"model": "headrace-tiny", "messages": [{"role": "user", "content": question}], "temperature": 0}
        return httpx.post(f"{self.http_url}/v1/chat/completions", json=body | fields, timeout=60)

    def loads(self) -> scheduler_pb2.GetLoadsResponse:
        """Asks the scheduler what its runners hold."""
        with grpc.insecure_channel(self.ports.address("scheduler")) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            return stub.GetLoads(scheduler_pb2.GetLoadsRequest(), timeout=5, metadata=self._token())

    def used_blocks(self) -> int:
        """Counts the blocks that requests hold."""
        return sum(runner.used_blocks for runner in self.loads().runners)

    def stored_blocks(self) -> int:
        """Counts the blocks in the second-level cache."""
        with grpc.insecure_channel(self.ports.address("kvstore")) as channel:
            stub = kvstore_pb2_grpc.KvStoreServiceStub(channel)
            request = kvstore_pb2.GetUsageRequest(tenant_namespace="tenant:public")
            return stub.GetUsage(request, timeout=5, metadata=self._token()).blocks

    def processes(self) -> list[psutil.Process]:
        """Lists every process that knows this instance's data directory, whoever recorded it."""
        return [process for process in psutil.process_iter() if str(self.data_dir) in _told(process)]

    def _token(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {(self.data_dir / 'cluster_token').read_text()}"),)


def _told(process: psutil.Process) -> str:
    """Returns a process's command line and environment, as far as it can be read."""
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""
