"""Loads a model folder through transformers, with attention in our hands, or says in one line why it cannot."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from safetensors import SafetensorError
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from services.common.model_folder import ModelFolderError, read_config
from services.runner.kv_pool import LayerShape
from services.runner.paged_attention import ATTENTION_NAME, LayerCall, register_attention
from services.runner.weight_files import Progress, find_weight_files

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to compute."""

    module: transformers.PreTrainedModel
    config: dict[str, Any]
    """config.json as it was read."""
    weight_files: list[Path]
    architecture: str
    context_length: int
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]
    layers: tuple[LayerShape, ...]
    smallest_window: int | None


def load_model(folder: Path, dtype: torch.dtype, device: torch.device, progress: Progress) -> LoadedModel:
    """Reads, checks and loads a folder; raises ModelFolderError with one line of cause."""
    config = read_config(folder)
    architecture = _architecture(folder, config)
    files = find_weight_files(folder)
    register_attention()
    module = _load_weights(folder, dtype, device, progress)
    text_config = module.config.get_text_config()
    _refuse_other_layers(folder, text_config)
    layers, smallest_window = _probe_layers(folder, module, text_config)
    return LoadedModel(
        module=module,
        config=config,
        weight_files=files,
        architecture=architecture,
        context_length=_context_length(folder, text_config),
        vocabulary_size=int(text_config.vocab_size),
        eos_token_ids=_eos_token_ids(folder, config),
        layers=layers,
        smallest_window=smallest_window,
    )


def _architecture(folder: Path, config: dict[str, Any]) -> str:
    kind = config.get("model_type")
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(kind))
    if known is None:
        raise ModelFolderError(f"{folder} holds a model of type {kind!r}; transformers knows no causal LM of that type")
    named = config.get("architectures") or [known]
    if known not in named:
        raise ModelFolderError(f"{folder} holds {named[0]}, which is not a causal LM; {known} would be")
    if "quantization_config" in config:
        raise ModelFolderError(f"{folder} holds quantized weights; give the model in float32, bfloat16 or float16")
    model_class = getattr(transformers, known)
    if not getattr(model_class, "_supports_attention_backend", False):
        raise ModelFolderError(
            f"{known} computes attention in a way that cannot be replaced (_supports_attention_backend is not set), "
            "so it cannot use a paged KV cache"
        )
    return str(known)


def _load_weights(
    folder: Path, dtype: torch.dtype, device: torch.device, progress: Progress
) -> transformers.PreTrainedModel:
    auto_model: Any = transformers.AutoModelForCausalLM
    try:
        with _loading_progress(progress):
            module, info = auto_model.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation=ATTENTION_NAME,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError) as error:
        raise ModelFolderError(f"{folder} cannot be loaded: {_first_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelFolderError(f"{folder} lacks {len(missing)} weights of its model, {missing[0]} among them")
    module.eval().requires_grad_(False)
    return cast(transformers.PreTrainedModel, module.to(device))


@contextlib.contextmanager
def _loading_progress(progress: Progress) -> Iterator[None]:
    """Turns transformers' progress bar into calls, one for each weight."""

    def track(_factory: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> Iterator[Any]:
        items = list(arguments[0])
        for place, item in enumerate(items, start=1):
            yield item
            progress(place / len(items))

    previous = transformers_logging.set_tqdm_hook(track)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(previous)


class _LayerProbe:
    """Answers one forward pass and notes what each layer stores and sees."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}
        self.repeated: int | None = None

    def attend(self, call: LayerCall, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Returns zeros of the right shape."""
        if call.layer in self.shapes:
            self.repeated = call.layer
        self.shapes[call.layer] = LayerShape(call.layer, key.shape[1], key.shape[-1], value.shape[-1])
        self.windows[call.layer] = call.window
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1])


@torch.inference_mode()
def _probe_layers(
    folder: Path, module: transformers.PreTrainedModel, text_config: Any
) -> tuple[tuple[LayerShape, ...], int | None]:
    probe = _LayerProbe()
    ids = torch.zeros((1, 2), dtype=torch.int64, device=module.device)
    positions = torch.arange(2, device=module.device)[None]
    try:
        module(input_ids=ids, position_ids=positions, use_cache=False, attention_step=probe)
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError) as error:
        raise ModelFolderError(
            f"{folder}: {type(module).__name__} cannot run on a paged KV cache: {_first_line(error)}"
        ) from error
    expected = int(text_config.num_hidden_layers)
    if probe.repeated is not None:
        raise ModelFolderError(
            f"{folder}: layer {probe.repeated} of {type(module).__name__} attends more than once; one set of keys and "
            "values for each layer is supported"
        )
    if len(probe.shapes) != expected:
        raise ModelFolderError(
            f"{folder}: {type(module).__name__} has {expected} layers, of which {len(probe.shapes)} keep keys and "
            "values of their own; layers that share or replace them are not supported"
        )
    kinds = getattr(text_config, "layer_types", None) or []
    for layer, kind in enumerate(kinds):
        if kind == "sliding_attention" and probe.windows.get(layer) is None:
            raise ModelFolderError(f"{folder}: {type(module).__name__} does not tell attention its sliding window")
    windows = [window for window in probe.windows.values() if window is not None]
    return tuple(probe.shapes[layer] for layer in sorted(probe.shapes)), min(windows, default=None)


def _refuse_other_layers(folder: Path, text_config: Any) -> None:
    kinds = set(getattr(text_config, "layer_types", None) or []) - _ATTENTION_KINDS
    if kinds:
        raise ModelFolderError(f"{folder} has layers of kind {sorted(kinds)[0]}, whose state is no paged KV cache")


def _context_length(folder: Path, text_config: Any) -> int:
    names = ("max_position_embeddings", "n_positions", "max_seq_len")
    lengths = [value for name in names if isinstance(value := getattr(text_config, name, None), int)]
    if not lengths:
        raise ModelFolderError(f"{folder}/config.json does not say how long its context is (max_position_embeddings)")
    return min([lengths[0], *_fixed_rope_limits(text_config)])


def _fixed_rope_limits(text_config: Any) -> list[int]:
    """Returns the lengths up to which rotary settings stay fixed.

    Beyond them transformers changes the frequencies of the whole batch, and keys that are cached already would be
    wrong.
    """
    parameters = getattr(text_config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    limits = []
    for settings in nested:
        if settings.get("rope_type") in ("dynamic", "longrope"):
            name = "original_max_position_embeddings"
            original = settings.get(name) or getattr(text_config, name, None)
            limits.append(int(original or text_config.max_position_embeddings))
    return limits


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation: dict[str, Any] = {}
    path = folder / "generation_config.json"
    if path.is_file():
        try:
            generation = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelFolderError(f"{path} cannot be read: {error}") from error
    found = generation.get("eos_token_id", config.get("eos_token_id"))
    ids = found if isinstance(found, list) else [found]
    return tuple(int(token) for token in ids if token is not None)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
