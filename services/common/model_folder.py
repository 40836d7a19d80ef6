"""Finds a model's folder and says which tokenizer it holds: the one thing that gateway and runner must agree on."""

import hashlib
import json
from pathlib import Path
from typing import Any

from services.common.config import ConfigError

# Everything that changes how text becomes ids; whichever of them exist are digested.
_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)

_HUB_PATTERNS = ["*.json", "*.txt", "*.model", "*.jinja"]


class ModelFolderError(ConfigError):
    """A model cannot be used: the message is one line with the cause."""


def find_model(model: str, *, with_weights: bool) -> Path:
    """Returns the local folder of a path or a hub id; a hub id is downloaded unless the cache has it."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if model.startswith((".", "/", "~")) or model.count("/") != 1 or folder.exists():
        raise ModelFolderError(f"{model} is not a folder; give a folder with config.json, or a hub id such as org/name")
    return _download(model, with_weights)


def served_name(model: str, name: str | None) -> str:
    """Returns the name under which clients ask for the model: as configured, else the hub id or the folder's name."""
    if name:
        return name
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.exists() else model


def read_config(folder: Path) -> dict[str, Any]:
    """Reads config.json; raises ModelFolderError where it is missing, broken, or asks to run code of its own."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} has no config.json; it is not a model folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelFolderError(f"{path} does not hold a JSON object")
    if "auto_map" in config:
        raise ModelFolderError(f"{path} asks to run code that comes with the model (auto_map); Headrace runs none")
    return config


def tokenizer_digest(folder: Path) -> str:
    """Returns the SHA-256 (hexadecimal) over the names and contents of the tokenizer's files."""
    digest = hashlib.sha256()
    found = [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not found:
        raise ModelFolderError(f"{folder} has no tokenizer files; copy tokenizer.json there")
    for path in found:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelFolderError(f"{path} cannot be read: {error.strerror}") from error
        for part in (path.name.encode(), content):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def _download(model: str, with_weights: bool) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [*_HUB_PATTERNS, "*.safetensors"] if with_weights else _HUB_PATTERNS
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=patterns))
    except LocalEntryNotFoundError as error:
        raise ModelFolderError(
            f"{model} is neither a folder nor in the local hub cache, and the hub cannot be reached"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelFolderError(f"{model} cannot be downloaded: {first_line}") from error
