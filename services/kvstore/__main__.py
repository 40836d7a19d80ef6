"""Starts a kvstore: python -m services.kvstore."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from headrace.v1.kvstore_pb2 import DESCRIPTOR
from headrace.v1.kvstore_pb2_grpc import add_KvStoreServiceServicer_to_server
from services.common.bind import require_safe_bind
from services.common.breaker import Breaker, BreakerSettings
from services.common.config import ProcessConfig, config_from_env
from services.common.process import GrpcServer, run_process, serve_metrics, wait_for_shutdown
from services.kvstore.config import KvStoreConfig
from services.kvstore.index import BlockIndex
from services.kvstore.integrity import load_or_create_secret, new_secret
from services.kvstore.leases import LeaseLimits, LeaseTable
from services.kvstore.metrics import KvStoreMetrics
from services.kvstore.rebuild import Rebuild
from services.kvstore.redis_index import RedisIndex
from services.kvstore.servicer import KvStoreServicer, Store
from services.kvstore.sweep import Sweep
from services.kvstore.value_keys import new_lease_id, new_value_key

log = structlog.get_logger()

SERVICE = DESCRIPTOR.services_by_name["KvStoreService"].full_name


def build_store(config: KvStoreConfig, breaker: Breaker) -> Store:
    """Builds the parts that the calls work on."""
    metrics = KvStoreMetrics(CollectorRegistry())
    index = BlockIndex(config.max_blocks, time.monotonic)
    limits = LeaseLimits(int(config.value_mib * 1024 * 1024), config.lease_seconds, config.max_leases)
    leases = LeaseTable(limits, time.monotonic, new_lease_id, new_value_key)
    metrics.watch(index, leases, breaker)
    redis = None
    if config.redis_url is not None:
        redis = RedisIndex(config.redis_url, config.redis_budget_seconds, breaker, metrics.note_redis_error)
    return Store(
        index=index,
        leases=leases,
        secret=load_or_create_secret(Path(config.secret_file)) if config.secret_file else new_secret(),
        redis=redis,
        metrics=metrics,
        value_expiry_seconds=config.value_expiry_seconds,
        lease_seconds=config.lease_seconds,
    )


async def main(process: ProcessConfig) -> None:
    """Serves until SIGTERM."""
    config = config_from_env(KvStoreConfig, "HEADRACE_KVSTORE_")
    require_safe_bind(
        config.listen,
        is_authenticated=process.cluster_token is not None,
        allow_insecure=process.allow_insecure_bind,
        way_out="set HEADRACE_PROCESS_CLUSTER_TOKEN",
    )
    store = build_store(config, Breaker(BreakerSettings()))
    server = GrpcServer(process, [SERVICE], is_internal=True)
    add_KvStoreServiceServicer_to_server(KvStoreServicer(store), server.server)
    await server.start(config.listen)
    stop_metrics = serve_metrics(config.metrics_listen, store.metrics.registry)
    # It answers whatever Redis does, and health says whether it answers.
    await server.set_serving(True)
    log.info("kvstore serves", listen=config.listen, has_redis=store.redis is not None)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in background_work(store, config)]
        await wait_for_shutdown()
        await server.stop(process.drain_seconds)
        for task in tasks:
            task.cancel()
    if store.redis is not None:
        await store.redis.close()
    stop_metrics()


def background_work(store: Store, config: KvStoreConfig) -> list[Coroutine[Any, Any, None]]:
    """Returns what goes on beside the serving: it all concerns Redis."""
    if store.redis is None:
        return []
    sweep = Sweep(store.redis, store.index, store.metrics, config.sweep_values_per_second)
    work = [store.redis.keep_probing(), sweep.run()]
    if config.secret_file is None:
        log.info("no HEADRACE_KVSTORE_SECRET_FILE: values of an earlier process cannot be verified and are not used")
    else:
        work.append(Rebuild(store.redis, store.index, store.metrics, config.rebuild_seconds).run())
    return work


if __name__ == "__main__":
    run_process("kvstore", main)
