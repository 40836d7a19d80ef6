"""The life of a server process: set up, serve, say how it is, drain, end."""

import asyncio
import signal
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import grpc
import structlog
import uvloop
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, start_http_server

from services.common.bind import require_free, split_host_port
from services.common.cluster_auth import ClusterAuthInterceptor
from services.common.config import SHARED_PREFIX, ConfigError, ProcessConfig, config_from_env
from services.common.drain import DrainInterceptor
from services.common.grpc_options import SERVER_OPTIONS
from services.common.health import Health
from services.common.logs import configure_logs
from services.common.request_parsing import RequestParsingInterceptor
from services.common.trace_interceptor import TraceInterceptor
from services.common.tracing import configure_tracing, shut_down_tracing

log = structlog.get_logger()

EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h
EXIT_CRASH = 70  # EX_SOFTWARE


class GrpcServer:
    """A grpc.aio server with health, reflection and tracing; not serving until it is told so."""

    def __init__(self, process: ProcessConfig, service_names: Iterable[str], *, is_internal: bool) -> None:
        self._running = DrainInterceptor()
        tracing = TraceInterceptor(is_internal=is_internal)
        interceptors: list[Any] = [self._running, tracing, RequestParsingInterceptor()]
        if is_internal and process.cluster_token:
            interceptors.insert(0, ClusterAuthInterceptor(process.cluster_token))
        self.server = grpc.aio.server(interceptors=interceptors, options=SERVER_OPTIONS)
        names = list(service_names)
        self._health = Health(names)
        add_HealthServicer_to_server(self._health, self.server)
        if process.reflection:
            names = [*names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self.server)

    async def start(self, addresses: Iterable[str]) -> list[int]:
        """Listens on every address and returns the ports; raises ConfigError for an address that is taken."""
        ports = []
        for address in addresses:
            require_free(address)
            try:
                ports.append(self.server.add_insecure_port(address))
            except RuntimeError as error:
                raise ConfigError(
                    f"cannot listen on {address}: the address is taken, not this machine's, or not allowed; "
                    "is another Headrace running there?"
                ) from error
        await self.server.start()
        return ports

    async def set_serving(self, is_serving: bool) -> None:
        """Sets what health checks see, for the process and each of its services."""
        self._health.set_serving(is_serving)

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls, lets running ones finish for so long, then ends them."""
        self._health.set_serving(False)
        self._health.close()
        await self._running.drain(grace_seconds)
        await self.server.stop(None)


def serve_metrics(address: str, registry: CollectorRegistry) -> Callable[[], None]:
    """Serves /metrics on "host:port" from a thread of its own; returns what stops it."""
    host, port = split_host_port(address)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
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
    configure_logs(service, "auto", "info")
    try:
        process = config_from_env(ProcessConfig, SHARED_PREFIX)
        configure_logs(service, process.log_format, process.log_level)
        provider = configure_tracing(service, instance=uuid.uuid4().hex)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(process))
    except ConfigError as error:
        log.error("cannot start", error=str(error))
        sys.exit(EXIT_CONFIG)
    except Exception:
        log.exception("crashed")
        sys.exit(EXIT_CRASH)
    finally:
        if provider is not None:
            shut_down_tracing(provider)
