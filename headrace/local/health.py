"""Asks a process how it is, the way a probe would."""

import enum
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.local.valkey import answers_ping

_UNIX = "unix:"


class Health(enum.Enum):
    """What a check found."""

    SERVING = "SERVING"
    NOT_SERVING = "NOT_SERVING"
    UNREACHABLE = "UNREACHABLE"
    DEAD = "DEAD"


def check_health(name: str, address: str, timeout_seconds: float = 2.0) -> Health:
    """Checks a service at its address: PING for Redis, grpc.health.v1 for all others."""
    if name == "redis":
        is_well = answers_ping(address.removeprefix(_UNIX), timeout_seconds)
        return Health.SERVING if is_well else Health.UNREACHABLE
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_seconds)
        except grpc.RpcError:
            return Health.UNREACHABLE
    is_serving: bool = reply.status == health_pb2.HealthCheckResponse.SERVING
    return Health.SERVING if is_serving else Health.NOT_SERVING
