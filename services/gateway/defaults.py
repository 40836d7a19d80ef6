"""What an absent sampling field means: the model's generation_config.json, then temperature 1 and top_p 1."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.model_folder import ModelFolderError
from services.gateway.request import Sampling

SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """The values of fields that a request leaves out."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    ignored: tuple[str, ...] = ()
    """Fields of generation_config.json that ask for something this version does not do."""


@dataclass(frozen=True, slots=True)
class ResolvedSampling:
    """Sampling without an absent field."""

    temperature: float
    top_p: float
    top_k: int
    seed: int


def resolve(sampling: Sampling, defaults: ModelDefaults) -> ResolvedSampling:
    """Fills the absent fields; a seed is drawn where none was given, for 0 is a seed like any other."""
    return ResolvedSampling(
        temperature=defaults.temperature if sampling.temperature is None else sampling.temperature,
        top_p=defaults.top_p if sampling.top_p is None else sampling.top_p,
        top_k=max(defaults.top_k if sampling.top_k is None else sampling.top_k, 0),
        seed=secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed,
    )


def load_defaults(folder: Path) -> ModelDefaults:
    """Reads generation_config.json, which a model need not have."""
    path = folder / "generation_config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ModelDefaults()
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelFolderError(f"{path} does not hold a JSON object")
    return _defaults_of(found)


def _defaults_of(found: dict[str, Any]) -> ModelDefaults:
    # transformers ignores the sampling fields of a model that says so.
    if found.get("do_sample") is False:
        return ModelDefaults(temperature=0.0)
    neutral = {"repetition_penalty": 1.0, "min_p": 0.0, "typical_p": 1.0}
    return ModelDefaults(
        temperature=_number(found, "temperature", 1.0, 2.0),
        top_p=_number(found, "top_p", 1.0, 1.0),
        top_k=int(_number(found, "top_k", 0, float("inf"))),
        ignored=tuple(name for name, value in neutral.items() if found.get(name) not in (None, value)),
    )


def _number(found: dict[str, Any], name: str, absent: float, most: float) -> float:
    value = found.get(name)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ModelFolderError(f"generation_config.json: {name} is {value!r}; it must be a number from 0 to {most:g}")
    return value
