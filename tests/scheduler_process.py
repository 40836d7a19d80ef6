"""A scheduler inside the test's own event loop, on a UNIX socket: every part is the real one but the process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from headrace.v1.scheduler_pb2_grpc import add_SchedulerServiceServicer_to_server
from services.common.config import ProcessConfig
from services.common.process import GrpcServer
from services.scheduler.__main__ import SERVICE_NAME, build_parts, keep_time
from services.scheduler.config import SchedulerConfig
from services.scheduler.service_parts import ServiceParts
from services.scheduler.servicer import SchedulerServicer


@dataclass
class LocalScheduler:
    """A running scheduler and its insides."""

    address: str
    parts: ServiceParts
    registry: CollectorRegistry
    server: GrpcServer


@asynccontextmanager
async def local_scheduler(folder: Path, config: SchedulerConfig | None = None) -> AsyncIterator[LocalScheduler]:
    """Serves on a socket in the folder until the block is left."""
    process = ProcessConfig(reflection=False)
    registry = CollectorRegistry()
    parts = build_parts(config or SchedulerConfig(kvstore=None), process, registry)
    server = GrpcServer(process, [SERVICE_NAME], is_internal=True)
    add_SchedulerServiceServicer_to_server(SchedulerServicer(parts, "scheduler-test"), server.server)
    address = f"unix:{folder}/scheduler.sock"
    await server.start([address])
    clock = asyncio.create_task(keep_time(parts, server))
    try:
        yield LocalScheduler(address, parts, registry, server)
    finally:
        clock.cancel()
        for session in parts.fleet.sessions:
            session.close("the test is over")
        await server.stop(0.5)
        await parts.second_level.close()
