"""Asks a process for its health from the command line: `python -m services.common.health_probe 127.0.0.1:50052`.

Exit 0 means serving. For container health checks, so it imports nothing but grpc.
"""

import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 3.0


def probe(address: str) -> str:
    """Returns SERVING, NOT_SERVING, or what went wrong."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            # A failed call's error is its call object as well, which the type stubs do not know.
            return f"{error.code().name}: {error.details()}"  # type: ignore[attr-defined]
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    return name


def main() -> None:
    """Probes the address given as the only argument."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m services.common.health_probe HOST:PORT")
    health = probe(sys.argv[1])
    sys.stdout.write(f"{health}\n")
    sys.exit(0 if health == "SERVING" else 1)


if __name__ == "__main__":
    main()
