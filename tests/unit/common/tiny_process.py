"""A process of the real kind with one slow method, run by the tests of the process's life."""

import asyncio
import os
import sys

import grpc
from prometheus_client import CollectorRegistry, Counter

from services.common.config import ProcessConfig
from services.common.process import GrpcServer, run_process, serve_metrics, wait_for_shutdown

# Also a test of what a client cannot see: the process says it on standard error.
_SAID = sys.stderr


def say(text: str) -> None:
    print(text, file=_SAID, flush=True)


async def slow(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    await context.write(b"begun")
    await asyncio.sleep(float(request))
    if request.endswith(b"00"):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "aborted")
    await context.write(b"ended")


async def main(process: ProcessConfig) -> None:
    if "TINY_CRASH" in os.environ:
        raise KeyError("bug at start")
    registry = CollectorRegistry()
    Counter("tiny_calls", "Calls so far", registry=registry).inc(3)
    stop_metrics = serve_metrics(os.environ["TINY_METRICS"], registry)
    server = GrpcServer(process, ["test.v1.Tiny"], is_internal=True)
    handler = grpc.unary_stream_rpc_method_handler(slow)
    server.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.v1.Tiny", {"Slow": handler}),))
    ports = await server.start(os.environ["TINY_LISTEN"].split(","))
    say(f"ports {ports}")
    if "TINY_LOADS" in os.environ:
        await asyncio.sleep(float(os.environ["TINY_LOADS"]))
    await server.set_serving(True)
    say("serving")
    await wait_for_shutdown()
    say("draining")
    await server.stop(process.drain_seconds)
    stop_metrics()
    say("drained")


run_process("tiny", main)
