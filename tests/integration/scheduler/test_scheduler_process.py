"""The scheduler as a process: start, metrics, drain."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
from scheduler_client import Gateway, gateway
from scripted_runner import ScriptedRunner

PROMPT = list(range(5, 30))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def scheduler_process(folder: Path, **settings: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Starts one on a socket; ends it if the test did not."""
    address = f"unix:{folder}/s.sock"
    values = {"LISTEN": address, "METRICS_LISTEN": "127.0.0.1:0", "KVSTORE": "", **settings}
    environment = {**os.environ, **{f"HEADRACE_SCHEDULER_{name}": value for name, value in values.items()}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.scheduler", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process, address
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_sigterm_lets_a_running_stream_finish_and_refuses_new_ones(folder: Path) -> None:
    """K8S-4."""
    async with scheduler_process(folder) as (process, address), ScriptedRunner(address) as runner:
        await asyncio.wait_for(runner.attached.wait(), 20)
        async with gateway(address) as gate:
            call = await gate.open(PROMPT, 60)
            first = await gate.read(call, tokens=2)
            runner.is_open.clear()
            process.send_signal(signal.SIGTERM)
            await until_refused(gate)
            runner.is_open.set()
            rest = await gate.read(call)
            assert len(first.token_ids) + len(rest.token_ids) == 60
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def until_refused(gate: Gateway) -> None:
    """Submits until the answer is that the scheduler is shutting down."""
    async with asyncio.timeout(10):
        while True:
            call = await gate.open(PROMPT, 1, request_id="late")
            reading = asyncio.create_task(gate.read(call))
            done, _ = await asyncio.wait([reading], timeout=0.1)
            call.cancel()
            if done and isinstance(reading.exception(), grpc.aio.AioRpcError):
                assert reading.exception().code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[union-attr]
                return
            await asyncio.gather(reading, return_exceptions=True)


async def test_metrics_are_served_and_name_what_operators_watch(folder: Path) -> None:
    port = free_port()
    async with (
        scheduler_process(folder, METRICS_LISTEN=f"127.0.0.1:{port}") as (_, address),
        ScriptedRunner(address) as runner,
        gateway(address) as gate,
        httpx.AsyncClient() as client,
    ):
        await asyncio.wait_for(runner.attached.wait(), 20)
        await gate.ask(PROMPT, 4)
        await gate.ask(PROMPT, 4)
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text

    for line in (
        'headrace_scheduler_queue_length{priority="4"} 0.0',
        'headrace_scheduler_running_requests{runner="runner-0"} 0.0',
        'headrace_scheduler_kv_usage_ratio{runner="runner-0"} 0.0',
        'headrace_scheduler_prefix_cache_queries_total{tier="l1"} 50.0',
        'headrace_scheduler_prefix_cache_hits_total{tier="l1"} 24.0',
        'headrace_scheduler_requests_total{finish_reason="length"} 2.0',
        "headrace_scheduler_preemptions_total 0.0",
        "headrace_scheduler_step_seconds_count",
    ):
        assert line in text


async def test_a_wrong_setting_stops_the_start_and_is_named(folder: Path) -> None:
    async with scheduler_process(folder, RUN_AHEAD="0") as (process, _):
        output, _ = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 78
        assert b"run_ahead is 0" in output
