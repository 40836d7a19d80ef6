"""Builds a runner's parts and runs them until SIGTERM."""

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from services.common.bind import require_safe_bind
from services.common.config import ProcessConfig
from services.common.process import GrpcServer, serve_metrics, wait_for_shutdown
from services.runner.attach import LinkConfig, SchedulerLink
from services.runner.build import ReadyEngine, build_engine
from services.runner.config import RunnerConfig
from services.runner.device import Device, count_cores, open_device
from services.runner.l2.orders import L2Config, LayoutIdentity
from services.runner.l2.transfers import L2Transfers
from services.runner.load_progress import LoadingStopped, LoadProgress
from services.runner.metrics import RunnerMetrics
from services.runner.plan_executor import ModelThread, NoTransfers, PlanExecutor
from services.runner.step_messages import Introduction, hello_to_proto

log = structlog.get_logger()

DRAIN_POLL_SECONDS = 0.05
# So long without work: what the scheduler had sent before it heard of the drain has arrived by then.
DRAIN_QUIET_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Parts:
    """What main has built before the model is there."""

    config: RunnerConfig
    process: ProcessConfig
    device: Device
    metrics: RunnerMetrics
    server: GrpcServer
    thread: ModelThread


async def serve_runner(config: RunnerConfig, process: ProcessConfig) -> None:
    """Loads the model, attaches to the scheduler, works until SIGTERM."""
    require_safe_bind(
        config.listen,
        is_authenticated=process.cluster_token is not None,
        allow_insecure=process.allow_insecure_bind,
        way_out="set HEADRACE_PROCESS_CLUSTER_TOKEN",
    )
    device = open_device(config.device)
    registry = CollectorRegistry()
    server = GrpcServer(process, [], is_internal=True)
    parts = _Parts(
        config, process, device, RunnerMetrics(registry), server, ModelThread(config.threads or count_cores())
    )
    shutdown = asyncio.create_task(wait_for_shutdown())
    stop_metrics = serve_metrics(config.metrics_listen, registry)
    try:
        await server.start(config.listen)
        ready = await _load(parts, shutdown)
        if ready is not None:
            await _serve(parts, ready, shutdown)
    finally:
        shutdown.cancel()
        await server.stop(0)
        stop_metrics()
        await asyncio.to_thread(parts.thread.close)


async def _load(parts: _Parts, shutdown: asyncio.Task[None]) -> ReadyEngine | None:
    """Builds the engine while health checks are answered; None if the process is asked to end meanwhile."""
    progress = LoadProgress(parts.config.model)
    shutdown.add_done_callback(lambda _: progress.stop())
    try:
        return await parts.thread.run(lambda: build_engine(parts.config, parts.device, progress))
    except LoadingStopped:
        return None


async def _serve(parts: _Parts, ready: ReadyEngine, shutdown: asyncio.Task[None]) -> None:
    """Works for the scheduler until SIGTERM, then until nothing runs any more or the drain time is over."""
    transfers = _open_transfers(parts.config, ready)
    executor = PlanExecutor(ready.engine, transfers or NoTransfers(), parts.thread)
    if transfers is not None:
        parts.metrics.watch_transfers(transfers)
    parts.metrics.watch(ready.identity, executor, parts.device)
    config = parts.config
    introduction = Introduction(
        runner_id=config.id,
        incarnation=uuid.uuid4().hex,
        address=config.listen[0],
        step_tokens=config.step_tokens,
        sequence_slots=config.sequence_slots,
        has_l2=transfers is not None,
    )
    link_config = LinkConfig(
        scheduler=config.scheduler,
        cluster_token=parts.process.cluster_token,
        hello=hello_to_proto(introduction, ready.identity),
        step_span_every=config.step_span_every,
    )
    link = SchedulerLink(link_config, executor, parts.device, parts.metrics)
    working = asyncio.create_task(link.run(parts.server.set_serving))
    try:
        await asyncio.wait({working, shutdown}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            link.drain()
            await parts.server.set_serving(False)
            await _drain(executor, parts.process.drain_seconds)
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        if transfers is not None:
            await asyncio.to_thread(transfers.close)


def _open_transfers(config: RunnerConfig, ready: ReadyEngine) -> L2Transfers | None:
    if config.redis_url is None:
        return None
    identity = ready.identity
    layout = LayoutIdentity(identity.dtype, identity.layout, identity.block_tokens, identity.block_bytes)
    return L2Transfers(L2Config(config.redis_url), ready.engine.pool, layout)


async def _drain(executor: PlanExecutor, drain_seconds: float) -> None:
    log.info("draining", sequences=executor.sequences)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_seconds):
            quiet_since = time.monotonic()
            while time.monotonic() - quiet_since < DRAIN_QUIET_SECONDS:
                await asyncio.sleep(DRAIN_POLL_SECONDS)
                if executor.sequences or executor.running_transfers:
                    quiet_since = time.monotonic()
