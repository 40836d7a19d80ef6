"""The life of a server process: set up, serve, say how it is, drain, end."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import grpc
import structlog
import uvloop
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, start_http_server

from services.common.cluster_auth import ClusterAuthInterceptor
from services.common.config import SHARED_PREFIX, ConfigError, ProcessConfig, config_from_env
from services.common.grpc_options import SERVER_OPTIONS
from services.common.logs import configure_logs
from services.common.trace_interceptor import TraceInterceptor
from services.common.tracing import configure_tracing

log = structlog.get_logger()

EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h


class GrpcServer:
    """A grpc.aio server with health, reflection and tracing; not serving until it is told so."""

    def __init__(self, process: ProcessConfig, service_names: Iterable[str], *, is_internal: bool) -> None:
        interceptors: list[Any] = [TraceInterceptor()]
        if is_internal and process.cluster_token:
            interceptors.insert(0, ClusterAuthInterceptor(process.cluster_token))
        self.server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        self._names = list(service_names)
        self._health = health_aio.HealthServicer()
        self._is_serving: bool | None = None
        add_HealthServicer_to_server(self._health, self.server)
        if process.reflection:
            names = [*self._names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self.server)

    async def start(self, addresses: Iterable[str]) -> None:
        """Listens on every address; raises ConfigError for one that is taken."""
        for address in addresses:
            try:
                port = self.server.add_insecure_port(address)
            except RuntimeError as error:
                raise ConfigError(f"cannot listen on {address}: {error}; is another Headrace running there?") from error
            if port == 0 and not address.startswith("unix:"):
                raise ConfigError(f"cannot listen on {address}; is another Headrace running there?")
        await self.set_serving(False)
        await self.server.start()

    async def set_serving(self, is_serving: bool) -> None:
        """Sets what health checks see, for the process and each of its services."""
        if is_serving == self._is_serving:
            return
        self._is_serving = is_serving
        kind = health_pb2.HealthCheckResponse
        status = kind.SERVING if is_serving else kind.NOT_SERVING
        for name in ["", *self._names]:
            await self._health.set(name, status)

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls, lets running ones finish for so long, then ends them."""
        await self.set_serving(False)
        await self.server.stop(grace_seconds)


def serve_metrics(address: str, registry: CollectorRegistry) -> Callable[[], None]:
    """Serves /metrics on "host:port" from a thread of its own; returns what stops it."""
    host, port = address.rsplit(":", 1)
    try:
        server, thread = start_http_server(int(port), addr=host.strip("[]"), registry=registry)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics on {address}: {error}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


async def wait_for_shutdown() -> None:
    """Returns at SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()


Main = Callable[[ProcessConfig], Coroutine[Any, Any, None]]


def run_process(service: str, main: Main) -> None:
    """Runs a service's main under uvloop with logs and traces set up; a configuration error is one line and exit 78."""
    provider: TracerProvider | None = None
    try:
        process = config_from_env(ProcessConfig, SHARED_PREFIX)
        configure_logs(service, process.log_format, process.log_level)
        provider = configure_tracing(service, instance=f"{service}-{id(process):x}")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(process))
    except ConfigError as error:
        log.error("cannot start", service=service, error=str(error))
        sys.exit(EXIT_CONFIG)
    finally:
        if provider is not None:
            provider.shutdown()
