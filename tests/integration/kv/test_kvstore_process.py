"""The kvstore as its own process: starts, is killed, comes back, ends."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from byte_pool import block_key
from grpc_health.v1 import health_pb2, health_pb2_grpc
from valkey_server import ValkeyServer

from headrace.v1 import kvstore_pb2 as pb
from headrace.v1.kvstore_pb2_grpc import KvStoreServiceStub
from services.common.value_header import TAG_BYTES, encode_head

KEYS = [block_key(number) for number in range(4)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a kvstore until the block ends."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HEADRACE_", "OTEL_"))}
    settings = {"LISTEN": f"unix:{folder}/k.sock", "METRICS_LISTEN": f"127.0.0.1:{free_port()}", **variables}
    environ = {**kept, **{f"HEADRACE_KVSTORE_{name}": text for name, text in settings.items()}}
    process = subprocess.Popen([sys.executable, "-m", "services.kvstore"], env=environ, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def calling(folder: Path) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{folder}/k.sock") as channel:
        yield channel


def look_up(channel: grpc.Channel) -> pb.LookupResponse:
    request = pb.LookupRequest(tenant_namespace="a", block_keys=KEYS)
    return KvStoreServiceStub(channel).Lookup(request, timeout=20, wait_for_ready=True)


def store_chain(channel: grpc.Channel, valkey: ValkeyServer) -> None:
    stub = KvStoreServiceStub(channel)
    lease = pb.LeaseRequest(tenant_namespace="a", block_keys=KEYS, block_bytes=16, runner_id="r")
    (grant,) = stub.Lease(lease, timeout=20, wait_for_ready=True).grants
    head = encode_head(grant.value_key, "float32", "layout", 16, KEYS, range(16))
    valkey.command("SET", grant.value_key, head + bytes(4 * 16 + TAG_BYTES))
    stub.Commit(pb.CommitRequest(lease_id=grant.lease_id, is_stored=True, stored_bytes=64), timeout=5)


def test_it_is_killed_and_comes_back_with_what_redis_holds_and_ends_when_told(valkey: ValkeyServer) -> None:
    folder = valkey.folder
    settings = {"REDIS_URL": valkey.url, "SECRET_FILE": f"{folder}/secret"}
    with running(folder, **settings), calling(folder) as channel:
        store_chain(channel, valkey)
        assert look_up(channel).runs[0].blocks == 4
    port = free_port()
    with running(folder, **settings, METRICS_LISTEN=f"127.0.0.1:{port}") as process, calling(folder) as channel:
        deadline = time.monotonic() + 20
        while not look_up(channel).runs:
            assert time.monotonic() < deadline
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            text = page.read().decode()
        for line in (
            "headrace_kvstore_blocks 4.0",
            "headrace_kvstore_values 1.0",
            "headrace_kvstore_rebuilt_values_total 1.0",
            "headrace_kvstore_breaker_open 0.0",
            'headrace_kvstore_lookups_total{result="hit"} 1.0',
        ):
            assert line in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_it_is_healthy_while_redis_is_away(tmp_path: Path, valkey: ValkeyServer) -> None:
    valkey.stop()
    with running(valkey.folder, REDIS_URL=valkey.url), calling(valkey.folder) as channel:
        assert not look_up(channel).runs
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("variables", "cause"),
    [
        ({"REDIS_URL": "http://x"}, b"REDIS_URL"),
        ({"VALUE_MIB": "much"}, b"VALUE_MIB"),
        ({"LISTEN": "0.0.0.0:0"}, b"CLUSTER_TOKEN"),
        ({"SECRET_FILE": "/proc/none/secret"}, b"secret file"),
    ],
)
def test_a_setting_that_cannot_be_used_stops_the_start_with_its_name(
    tmp_path: Path, variables: dict[str, str], cause: bytes
) -> None:
    with running(tmp_path, **variables) as process:
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        assert process.returncode == 78
        assert process.stdout is not None
        assert cause in process.stdout.read()
