"""Says exactly what a runner holds: everything that the meaning of a KV block depends on."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.model_folder import tokenizer_digest
from services.runner.kv_pool import KvPool, LayerShape
from services.runner.model_loader import LoadedModel


@dataclass(frozen=True, slots=True)
class Identity:
    """A model and the shape of its KV cache."""

    name: str
    version: str
    architecture: str
    weights_digest: str
    tokenizer_digest: str
    context_length: int
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    block_tokens: int
    block_count: int
    block_bytes: int
    layout: str
    rope: str
    smallest_window: int | None


def identify(name: str, folder: Path, model: LoadedModel, pool: KvPool, weights_digest: str) -> Identity:
    """Collects what the hello and the second-level cache say about this runner."""
    return Identity(
        name=name,
        version=weights_digest[:12],
        architecture=model.architecture,
        weights_digest=weights_digest,
        tokenizer_digest=tokenizer_digest(folder),
        context_length=model.context_length,
        vocabulary_size=model.vocabulary_size,
        eos_token_ids=model.eos_token_ids,
        dtype=str(pool.dtype).removeprefix("torch."),
        block_tokens=pool.block_tokens,
        block_count=pool.block_count,
        block_bytes=pool.block_bytes,
        layout=layout_text(model.layers),
        rope=rope_text(model.module.config.get_text_config()),
        smallest_window=model.smallest_window,
    )


def layout_text(shapes: Sequence[LayerShape]) -> str:
    """Names the order of a block's dimensions and their sizes; runs of equal layers stand together."""
    sizes = [f"{shape.kv_heads}x{shape.key_size}+{shape.kv_heads}x{shape.value_size}" for shape in shapes]
    runs = [f"{len(list(run))}*({size})" for size, run in itertools.groupby(sizes)]
    return f"layer,kv,token,head,size:{','.join(runs)}"


def rope_text(text_config: Any) -> str:
    """Returns the rotary settings as canonical text."""
    parameters = getattr(text_config, "rope_parameters", None)
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), default=str)
