"""The gateway as the process that operators start: it begins, refuses to begin, stays responsive and drains."""

import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from gateway_stack import MODEL, WORDS, collect, hello_of, ids_of, refusal_of, saying, text_request
from grpc_health.v1 import health_pb2, health_pb2_grpc
from scheduler_process import local_scheduler
from scripted_runner import ScriptedRunner
from tokenizer_folder import byte_level, write_folder

from headrace.v1 import admin_pb2, admin_pb2_grpc, inference_pb2_grpc
from services.common.grpc_options import open_channel

PREFIX = "HEADRACE_GATEWAY_"
SERVING = health_pb2.HealthCheckResponse.SERVING
START_SECONDS = 60


@dataclass
class Running:
    """A gateway process and channels to it."""

    process: asyncio.subprocess.Process
    client: Any
    health: Any
    admin: Any
    runner: ScriptedRunner
    address: str

    async def status(self) -> int:
        """Asks for the health of the whole process; 0 while it does not answer."""
        try:
            answer = await self.health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.aio.AioRpcError:
            return 0
        return int(answer.status)


async def start(sockets: Path, **settings: str) -> asyncio.subprocess.Process:
    """Starts a gateway process."""
    variables = {
        "MODEL": str(sockets / "model"),
        "MODEL_NAME": MODEL,
        "LISTEN": f"unix:{sockets}/public.sock",
        "HTTP_LISTEN": "127.0.0.1:0",
        "ADMIN_LISTEN": f"unix:{sockets}/admin.sock",
        "METRICS_LISTEN": "127.0.0.1:0",
        "SCHEDULER": f"unix:{sockets}/scheduler.sock",
    } | settings
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.gateway",
        env=clean | {PREFIX + name: value for name, value in variables.items()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@asynccontextmanager
async def running(script: Any, **hello: Any) -> AsyncIterator[Running]:
    """Runs a gateway process in front of a scheduler and a scripted runner."""
    with tempfile.TemporaryDirectory(prefix="hr") as name:
        sockets = Path(name)
        folder = write_folder(sockets / "model", byte_level(WORDS))
        async with (
            local_scheduler(sockets) as scheduler,
            ScriptedRunner(scheduler.address, hello_of(folder, **hello), script) as runner,
            open_channel(f"unix:{sockets}/public.sock") as public,
            open_channel(f"unix:{sockets}/admin.sock") as admin,
        ):
            process = await start(sockets)
            gateway = Running(
                process,
                inference_pb2_grpc.InferenceServiceStub(public),
                health_pb2_grpc.HealthStub(public),
                admin_pb2_grpc.AdminServiceStub(admin),
                runner,
                f"unix:{sockets}/public.sock",
            )
            try:
                await until_serving(gateway)
                yield gateway
            finally:
                if process.returncode is None:
                    process.kill()
                await process.communicate()


async def until_serving(gateway: Running) -> None:
    deadline = time.monotonic() + START_SECONDS
    while await gateway.status() != SERVING:
        assert gateway.process.returncode is None, "the gateway has ended"
        assert time.monotonic() < deadline, "the gateway does not serve"
        await asyncio.sleep(0.05)


async def test_sigterm_lets_running_streams_finish_and_refuses_new_ones() -> None:
    """K8S-4."""
    async with running(saying([], then=ids_of(b"x")[0])) as gateway:
        gateway.runner.is_open.clear()
        request = text_request(stop={"max_tokens": 100})
        streams = [asyncio.create_task(collect(gateway.client.StreamGenerate(request))) for _ in range(5)]

        async def all_are_open() -> bool:
            return (await gateway.admin.GetStatus(admin_pb2.GetStatusRequest())).open_requests == len(streams)

        await until_answering(all_are_open)
        gateway.process.send_signal(signal.SIGTERM)
        refusal = None
        while refusal is None or refusal.code is not grpc.StatusCode.UNAVAILABLE:
            refusal = await refusal_of(gateway.client.Generate(request, timeout=0.5))
        gateway.runner.is_open.set()
        for stream in streams:
            assert "".join(chunk.text for chunk in await stream) == "x" * 100
        assert await asyncio.wait_for(gateway.process.wait(), 10) == 0


async def test_huge_prompts_leave_health_responsive_and_need_no_torch() -> None:
    """K8S-6: some are refused before tokenizing, some only after it."""
    large = {"block_tokens": 1024, "block_count": 4096, "context_length": 4_000_000}
    too_much = text_request("hello world " * 80_000, stop={"max_tokens": 3_900_000})
    oversized = text_request("x" * 5_000_000)
    async with running(saying([], then=ids_of(b"x")[0]), **large) as gateway:
        watch = HealthWatch(gateway.address)
        with watch:
            refusals = await asyncio.gather(
                *(refusal_of(gateway.client.Generate(request)) for request in (too_much, oversized) * 2)
            )
        torch_files = _mapped_files(gateway.process.pid, "torch")
    assert [refusal.fields for refusal in refusals] == [["stop.max_tokens"], ["prompt.text"]] * 2
    assert watch.longest_check < 0.5 + watch.longest_stall
    assert torch_files == []


class HealthWatch:
    """Checks a gateway's health all the time, from a thread that nothing else of the test disturbs."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.longest_check = 0.0
        self.longest_stall = 0.0
        """How much longer than asked for the machine let the thread sleep: its load, not the gateway's doing."""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._channel.close()

    def _watch(self) -> None:
        health: Any = health_pb2_grpc.HealthStub(self._channel)
        while not self._is_over.is_set():
            began = time.monotonic()
            assert health.Check(health_pb2.HealthCheckRequest()).status == SERVING
            checked = time.monotonic()
            time.sleep(0.02)
            self.longest_check = max(self.longest_check, checked - began)
            self.longest_stall = max(self.longest_stall, time.monotonic() - checked - 0.02)


def _mapped_files(pid: int, name: str) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if name in line]


async def until_answering(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Returns when the condition, which asks the gateway, holds."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


async def test_status_tells_what_the_gateway_sees() -> None:
    async with running(saying([])) as gateway:
        status = await gateway.admin.GetStatus(admin_pb2.GetStatusRequest())
        assert status.ready
        assert [runner.runner_id for runner in status.runners] == ["runner-0"]
        refusal = await refusal_of(gateway.admin.DrainRunner(admin_pb2.DrainRunnerRequest(runner_id="runner-0")))
        assert refusal.reason == "NOT_IMPLEMENTED"
        await gateway.runner.close()

        async def has_noticed() -> bool:
            return await gateway.status() != SERVING

        await until_answering(has_noticed)
        status = await gateway.admin.GetStatus(admin_pb2.GetStatusRequest())
        assert (status.ready, status.not_ready_reason) == (False, "no runner is attached")


async def test_a_configuration_that_cannot_work_ends_the_start_with_its_cause(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", byte_level())
    cases = [
        ({"MODEL": str(tmp_path / "none")}, "is not a folder"),
        ({"MODEL": str(folder), "LISTEN": "0.0.0.0:0"}, "HEADRACE_GATEWAY_API_KEYS_FILE"),
        ({"MODEL": str(folder), "ADMIN_LISTEN": "0.0.0.0:0"}, "HEADRACE_PROCESS_CLUSTER_TOKEN"),
        ({"MODEL": str(folder), "MODLE_NAME": "x"}, "did you mean HEADRACE_GATEWAY_MODEL_NAME"),
        ({"MODEL": str(folder), "API_KEYS_FILE": str(tmp_path / "none")}, "cannot be read"),
    ]
    processes = [await start(tmp_path, **settings) for settings, _ in cases]
    for process, (_, says) in zip(processes, cases, strict=True):
        output, _ = await asyncio.wait_for(process.communicate(), START_SECONDS)
        assert process.returncode == 78, output.decode()
        assert says in output.decode()
