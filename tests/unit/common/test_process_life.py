"""A server process from start to end: real processes, real signals."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.common.cluster_auth import cluster_metadata

SCRIPT = Path(__file__).with_name("tiny_process.py")
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Tiny:
    """A running tiny process."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, metrics: str) -> None:
        self.process = process
        self.address = address
        self.metrics = metrics
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    async def until(self, said: str) -> None:
        """Reads what it says until it says this."""
        async with asyncio.timeout(20):
            while line := await self.process.stderr.readline():
                if line.decode().startswith(said):
                    return
        raise AssertionError(f"it never said {said!r}")

    async def end(self) -> tuple[int, list[dict[str, object]]]:
        """Waits for its end; returns the exit status and the log lines."""
        async with asyncio.timeout(20):
            output, _ = await self.process.communicate()
        return self.process.returncode, [json.loads(line) for line in output.decode().splitlines()]

    def slow(self, request: bytes, **options):
        """Opens a call that takes as many seconds as the request says."""
        return self.channel.unary_stream("/test.v1.Tiny/Slow")(request, **options)


@pytest.fixture
def tiny(tmp_path):
    """Returns a context manager that runs a tiny process."""

    @asynccontextmanager
    async def run(**environment: str):
        address, metrics = f"unix:{tmp_path}/t.sock", f"127.0.0.1:{free_port()}"
        given = {"TINY_LISTEN": address, "TINY_METRICS": metrics, "HEADRACE_PROCESS_LOG_FORMAT": "json"} | environment
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "OTEL_"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SCRIPT),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=inherited | {"PYTHONPATH": os.getcwd()} | given,
        )
        running = Tiny(process, given["TINY_LISTEN"], given["TINY_METRICS"])
        try:
            yield running
        finally:
            await running.channel.close()
            if process.returncode is None:
                process.kill()
                await process.wait()

    return run


async def _first_refusal(running: Tiny) -> grpc.StatusCode:
    """Calls without a pause until a call fails."""
    while True:
        call = running.slow(b"0")
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_calls_end_and_refuses_new_ones(tiny, number):
    async with tiny() as running:
        await running.until("serving")
        call = running.slow(b"1.0")
        assert await call.read() == b"begun"
        running.process.send_signal(number)
        await running.until("draining")

        assert await _first_refusal(running) is grpc.StatusCode.UNAVAILABLE
        assert (await HealthStub(running.channel).Check(HealthCheckRequest())).status == NOT_SERVING
        assert await call.read() == b"ended"
        assert await call.code() is grpc.StatusCode.OK
        status, lines = await running.end()

    assert (status, lines) == (0, [])


async def test_an_open_health_watch_does_not_hold_the_drain_up(tiny):
    async with tiny() as running:
        await running.until("serving")
        watch = HealthStub(running.channel).Watch(HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        running.process.send_signal(signal.SIGTERM)
        began = time.monotonic()

        assert (await watch.read()).status == NOT_SERVING
        assert (await running.end())[0] == 0

    assert time.monotonic() - began < 5


async def test_a_call_that_outlives_the_drain_is_ended(tiny):
    async with tiny(HEADRACE_PROCESS_DRAIN_SECONDS="0.2") as running:
        await running.until("serving")
        call = running.slow(b"60")
        await call.read()
        running.process.send_signal(signal.SIGTERM)

        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await call.read()
        assert (await running.end())[0] == 0


async def test_handlers_that_abort_while_draining_answer_with_their_own_code(tiny):
    """GRPC-8."""
    async with tiny(HEADRACE_PROCESS_DRAIN_SECONDS="5") as running:
        await running.until("serving")
        calls = [running.slow(b"0.300") for _ in range(5)]
        for call in calls:
            await call.read()
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)

        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert (await running.end())[0] == 0

    assert time.monotonic() - began < 5


async def test_health_is_not_serving_until_it_is_said(tiny):
    async with tiny(TINY_LOADS="0.5") as running:
        await running.until("ports")
        watch = HealthStub(running.channel).Watch(HealthCheckRequest(service="test.v1.Tiny"))

        assert (await watch.read()).status == NOT_SERVING
        assert (await watch.read()).status == SERVING
        assert (await HealthStub(running.channel).Check(HealthCheckRequest())).status == SERVING


async def test_metrics_are_served(tiny):
    async with tiny() as running:
        await running.until("serving")
        url = f"http://{running.metrics}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read().decode())

    assert "tiny_calls_total 3.0" in text


async def _reflected(running: Tiny) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    return [service.name for service in answers[0].list_services_response.service]


async def test_reflection_can_be_switched_off(tiny):
    async with tiny() as running:
        await running.until("serving")
        assert "grpc.health.v1.Health" in await _reflected(running)
    async with tiny(HEADRACE_PROCESS_REFLECTION="false") as running:
        await running.until("serving")
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await _reflected(running)


async def test_an_internal_server_asks_for_the_cluster_token(tiny):
    async with tiny(HEADRACE_PROCESS_CLUSTER_TOKEN="t0ken") as running:
        await running.until("serving")
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await running.slow(b"0").read()
        metadata = tuple(cluster_metadata("t0ken").items())
        assert await running.slow(b"0", metadata=metadata).read() == b"begun"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HEADRACE_PROCESS_LOG_LEVL": "info"}, "HEADRACE_PROCESS_LOG_LEVL is not a setting; did you mean"),
        ({"HEADRACE_PROCESS_DRAIN_SECONDS": "soon"}, "HEADRACE_PROCESS_DRAIN_SECONDS='soon' is not a number"),
        ({"TINY_LISTEN": "127.0.0.1"}, "'127.0.0.1' is not an address"),
        ({"TINY_LISTEN": "unix:/none/such/folder/x.sock"}, "cannot listen on unix:/none/such/folder/x.sock"),
        ({"TINY_METRICS": "127.0.0.1:x"}, "'127.0.0.1:x' is not an address"),
        ({"TINY_METRICS": "192.0.2.1:9"}, "cannot serve metrics on 192.0.2.1:9"),
    ],
)
async def test_a_configuration_that_cannot_be_used_is_one_line_and_exit_78(tiny, environment, expected):
    async with tiny(**environment) as running:
        status, lines = await running.end()

    assert status == 78
    assert [(line["event"], line["level"], line["service"]) for line in lines] == [("cannot start", "error", "tiny")]
    assert lines[0]["error"].startswith(expected)


async def test_a_port_that_is_taken_is_one_line_and_exit_78(tiny):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for variable in ("TINY_LISTEN", "TINY_METRICS"):
            async with tiny(**{variable: taken}) as running:
                status, lines = await running.end()
            assert status == 78
            assert taken in lines[0]["error"]


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_a_second_process_at_one_address_does_not_start(tiny, kind):
    environment = {} if kind == "unix" else {"TINY_LISTEN": f"127.0.0.1:{free_port()}"}
    async with tiny(**environment) as first:
        await first.until("serving")
        async with tiny(**environment) as second:
            status, lines = await second.end()
        assert status == 78
        assert first.address in lines[0]["error"]
        assert await first.slow(b"0").read() == b"begun"


async def test_a_socket_file_left_behind_by_a_killed_process_is_no_obstacle(tiny):
    async with tiny() as first:
        await first.until("serving")
        first.process.kill()
        await first.process.wait()
    async with tiny() as second:
        await second.until("serving")
        assert await second.slow(b"0").read() == b"begun"


async def test_a_crash_at_start_is_one_line_with_its_trace(tiny):
    async with tiny(TINY_CRASH="1") as running:
        status, lines = await running.end()

    assert status == 70
    assert [line["event"] for line in lines] == ["crashed"]
    assert "bug at start" in lines[0]["exception"]


@pytest.mark.parametrize("kind", ["closed port", "silent"])
async def test_a_dead_trace_receiver_delays_neither_calls_nor_the_exit(tiny, kind):
    """OBS-8: a call is as fast as ever, and the exit waits a few seconds at most."""
    with socket.socket() as receiver:
        receiver.bind(("127.0.0.1", 0))
        if kind == "silent":
            receiver.listen()
        endpoint = f"http://127.0.0.1:{receiver.getsockname()[1]}"
        async with tiny(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_BSP_SCHEDULE_DELAY="10") as running:
            await running.until("serving")
            took = []
            for _ in range(20):
                began = time.monotonic()
                await running.slow(b"0").read()
                took.append(time.monotonic() - began)
            running.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert (await running.end())[0] == 0

    assert sorted(took)[10] < 0.1
    assert time.monotonic() - began < 6
