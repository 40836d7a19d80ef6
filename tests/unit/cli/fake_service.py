"""A stand-in for any service: a real process with grpc.health.v1 and, for a gateway, an answer to Chat.

Its name and port are arguments; what goes wrong with it is a line of JSON on stdout and an exit code.
"""

import argparse
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.v1 import generation_pb2, inference_pb2, inference_pb2_grpc


class Health(health_pb2_grpc.HealthServicer):
    """Always well."""

    def Check(self, request: Any, context: Any) -> Any:
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class Inference(inference_pb2_grpc.InferenceServiceServicer):
    """Answers everything the same way."""

    def Chat(self, request: Any, context: Any) -> Any:
        choice = inference_pb2.Choice(text="a fake answer", finish_reason=generation_pb2.FINISH_REASON_STOP)
        return inference_pb2.GenerateResponse(choices=[choice])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("port", type=int)
    parser.add_argument("--fail", type=int, help="end at once with this exit code")
    parser.add_argument("--fail-after-first", action="store_true", help="end at once, except for the first time")
    parser.add_argument("--stops", type=Path, help="a file that gets a line with the name at SIGTERM")
    arguments = parser.parse_args()
    seen = arguments.stops.with_name(f"{arguments.name}.started") if arguments.stops else None
    if arguments.fail is not None or (arguments.fail_after_first and seen is not None and seen.exists()):
        sys.stdout.write(json.dumps({"level": "error", "event": "cannot start", "error": "no such weights"}) + "\n")
        sys.exit(arguments.fail or 1)
    if seen is not None:
        seen.touch()
    # Blocked in every thread and waited for in this one: a handler would run only when this thread wakes by itself,
    # which it does not when the kernel gives the signal to another thread, as it may after SIGSTOP and SIGCONT.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Inference(), server)
    server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    server.start()
    signal.sigwait([signal.SIGTERM])
    if arguments.stops:
        with arguments.stops.open("a") as file:
            file.write(f"{arguments.name}\n")
    server.stop(0)


if __name__ == "__main__":
    main()
