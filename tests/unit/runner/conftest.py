"""Tiny models with random weights, made once, and engines on them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from services.runner.engine import Engine, EngineLimits
from services.runner.fast_linear import use_fast_linears
from services.runner.kv_pool import KvPool, PoolLayout
from services.runner.make_model import make_model
from services.runner.model_loader import LoadedModel, load_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices gain nothing from threads, and lose much on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a model of a shape, once."""
    made: dict[str, Path] = {}

    def make(shape: str) -> Path:
        if shape not in made:
            made[shape] = make_model(shape, tmp_path_factory.mktemp("models") / shape)
        return made[shape]

    return make


@pytest.fixture(scope="session")
def loaded_model(model_folder: Callable[[str], Path]) -> Callable[[str], LoadedModel]:
    """Loads a model of a shape, or of a folder, once."""
    loaded: dict[str, LoadedModel] = {}

    def load(shape: str) -> LoadedModel:
        if shape not in loaded:
            folder = Path(shape) if Path(shape).is_dir() else model_folder(shape)
            loaded[shape] = load_model(folder, torch.float32, torch.device("cpu"), lambda _: None)
            use_fast_linears(loaded[shape].module)
        return loaded[shape]

    return load


@pytest.fixture
def make_engine(loaded_model: Callable[[str], LoadedModel]) -> Callable[..., Engine]:
    """Builds an engine with an empty pool."""

    def make(shape: str, *, block_tokens: int = 16, block_count: int = 96, slots: int = 8) -> Engine:
        model = loaded_model(shape)
        pool = KvPool(model.layers, PoolLayout(block_count, block_tokens, torch.float32, torch.device("cpu")))
        return Engine(model.module, pool, EngineLimits(slots, model.context_length))

    return make
