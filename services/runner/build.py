"""Builds a runner's engine: model, pool, check, warm-up."""

import time
from dataclasses import dataclass

import structlog
import torch

from services.common.model_folder import find_model, served_name
from services.runner.config import RunnerConfig
from services.runner.device import Device
from services.runner.engine import Engine, EngineLimits
from services.runner.fast_linear import use_fast_linears
from services.runner.kv_pool import KvPool, PoolLayout, block_bytes_of
from services.runner.load_progress import LoadProgress
from services.runner.model_identity import Identity, identify
from services.runner.model_loader import load_model
from services.runner.pool_size import PoolWish, count_blocks
from services.runner.self_check import check_model
from services.runner.step import NewSequence, Sampling, SequenceWork, StepOrder
from services.runner.weight_files import digest_weights

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReadyEngine:
    """An engine that has generated its first tokens, and what it is."""

    engine: Engine
    identity: Identity


def build_engine(config: RunnerConfig, device: Device, progress: LoadProgress) -> ReadyEngine:
    """Loads the model and proves that it works; raises ConfigError with one line of cause."""
    started = time.monotonic()
    dtype: torch.dtype = getattr(torch, config.dtype)
    folder = find_model(config.model, with_weights=True)
    model = load_model(folder, dtype, device.torch_device, progress.part(0, 60))
    if device.torch_device.type == "cpu":
        use_fast_linears(model.module)
    weights_digest = digest_weights(model.weight_files, model.config, progress.part(60, 95))
    block_bytes = block_bytes_of(model.layers, config.block_tokens, dtype)
    wish = PoolWish(
        kv_cache_mib=config.kv_cache_mib,
        free_bytes=device.free_bytes(),
        block_bytes=block_bytes,
        block_tokens=config.block_tokens,
        sequence_slots=config.sequence_slots,
        context_length=model.context_length,
    )
    pool = KvPool(model.layers, PoolLayout(count_blocks(wish), config.block_tokens, dtype, device.torch_device))
    check_model(model.module, pool, model.vocabulary_size)
    engine = Engine(model.module, pool, EngineLimits(config.sequence_slots, model.context_length))
    _warm_up(engine)
    progress.reach(100)
    identity = identify(served_name(config.model, config.model_name), folder, model, pool, weights_digest)
    log.info(
        "the model is ready",
        stage="LOAD",
        model=identity.name,
        version=identity.version,
        architecture=identity.architecture,
        dtype=identity.dtype,
        kv_blocks=identity.block_count,
        kv_mib=identity.block_count * identity.block_bytes // 2**20,
        duration_ms=round((time.monotonic() - started) * 1000),
    )
    return ReadyEngine(engine, identity)


def _warm_up(engine: Engine) -> None:
    """Generates three tokens."""
    new = NewSequence(0, "warm-up", (0, 1), 2, 0, (0,), Sampling(temperature=0.0))
    engine.execute(StepOrder(0, new_sequences=(new,), work=(SequenceWork(0, 2),)))
    if engine.pool.block_tokens > 3:
        engine.execute(StepOrder(1, work=(SequenceWork(0, 1),)))
    engine.reset()
