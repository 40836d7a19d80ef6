"""Starts a scheduler: `python -m services.scheduler`."""

import asyncio
import socket
import time
import uuid
from contextlib import suppress

from prometheus_client import CollectorRegistry

from headrace.v1 import scheduler_pb2
from headrace.v1.scheduler_pb2_grpc import add_SchedulerServiceServicer_to_server
from services.common.bind import require_safe_bind
from services.common.cluster_auth import cluster_metadata
from services.common.config import ProcessConfig, config_from_env
from services.common.grpc_options import open_channel
from services.common.process import GrpcServer, run_process, serve_metrics, wait_for_shutdown
from services.scheduler.admission import Admission
from services.scheduler.config import SchedulerConfig
from services.scheduler.fleet import Fleet
from services.scheduler.metrics import SchedulerMetrics, StateGauges
from services.scheduler.second_level import KvStoreAccess, NoSecondLevel, SecondLevel
from services.scheduler.service_parts import ServiceParts
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.waiting_queue import WaitingQueue

SERVICE_NAME = scheduler_pb2.DESCRIPTOR.services_by_name["SchedulerService"].full_name
TICK_SECONDS = 0.05


def build_parts(config: SchedulerConfig, process: ProcessConfig, registry: CollectorRegistry) -> ServiceParts:
    """Builds everything but the server."""
    metrics = SchedulerMetrics(registry)
    queue = WaitingQueue()
    fleet = Fleet(config, queue, metrics.note_ended, time.monotonic())
    admission = Admission(config, queue, fleet, metrics.note_ended)
    registry.register(StateGauges(queue, fleet))
    second_level: SecondLevel | NoSecondLevel = NoSecondLevel()
    if config.kvstore:
        token = cluster_metadata(process.cluster_token)
        access = KvStoreAccess(open_channel(config.kvstore), token, config.lookup_seconds)
        second_level = SecondLevel(access, metrics)
    return ServiceParts(config, queue, fleet, admission, second_level, metrics)


async def keep_time(parts: ServiceParts, server: GrpcServer) -> None:
    """Notices what did not happen in time, and says whether a runner can serve."""
    while True:
        parts.fleet.tick(time.monotonic())
        await server.set_serving(bool(parts.fleet.sessions))
        await asyncio.sleep(TICK_SECONDS)


async def drain(parts: ServiceParts, seconds: float) -> None:
    """Lets running requests finish for so long, then sends the runners away."""
    parts.admission.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(parts.admission.wait_idle(), seconds)
    for session in parts.fleet.sessions:
        session.close("the scheduler is shutting down")


async def main(process: ProcessConfig) -> None:
    """Serves until it is told to stop."""
    config = config_from_env(SchedulerConfig, "HEADRACE_SCHEDULER_")
    require_safe_bind(
        config.listen,
        is_authenticated=process.cluster_token is not None,
        allow_insecure=process.allow_insecure_bind,
        way_out="set HEADRACE_PROCESS_CLUSTER_TOKEN",
    )
    registry = CollectorRegistry()
    parts = build_parts(config, process, registry)
    server = GrpcServer(process, [SERVICE_NAME], is_internal=True)
    servicer = SchedulerServicer(parts, f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}")
    add_SchedulerServiceServicer_to_server(servicer, server.server)
    stop_metrics = serve_metrics(config.metrics_listen, registry)
    await server.start(config.listen)
    clock = asyncio.create_task(keep_time(parts, server))
    await wait_for_shutdown()
    await server.set_serving(False)
    clock.cancel()
    await drain(parts, process.drain_seconds)
    await server.stop(1.0)
    await parts.second_level.close()
    stop_metrics()


if __name__ == "__main__":
    run_process("scheduler", main)
