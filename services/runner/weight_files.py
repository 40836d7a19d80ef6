"""The safetensors files of a model folder: found, checked and digested before anything is loaded."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.common.model_folder import ModelFolderError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_READ_BYTES = 1024 * 1024
_MAX_HEADER_BYTES = 100 * 1024 * 1024

# Says nothing about what the weights compute.
_COSMETIC_SETTINGS = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")

Progress = Callable[[float], None]
"""Called with the part that is done, 0 to 1."""


def find_weight_files(folder: Path) -> list[Path]:
    """Returns the weight files in order of name; raises ModelFolderError if one is missing or broken."""
    index = folder / INDEX_FILE
    if index.is_file():
        files = [folder / name for name in _shard_names(index)]
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise ModelFolderError(f"{folder} lacks {len(missing)} of its {len(files)} weight files: {missing[0]}")
    elif (folder / SINGLE_FILE).is_file():
        files = [folder / SINGLE_FILE]
    else:
        raise ModelFolderError(_no_weights(folder))
    for path in files:
        _check_whole(path)
    return files


def digest_weights(files: list[Path], config: dict[str, Any], progress: Progress) -> str:
    """Returns the SHA-256 (hexadecimal) over the settings that shape the computation and all bytes of the files."""
    settings = {name: value for name, value in config.items() if name not in _COSMETIC_SETTINGS}
    text = json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(len(text).to_bytes(8, "big") + text)
    total, done = sum(path.stat().st_size for path in files), 0
    buffer = memoryview(bytearray(_READ_BYTES))
    for path in files:
        digest.update(path.stat().st_size.to_bytes(8, "big"))
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                done += count
                progress(done / total)
    return digest.hexdigest()


def _shard_names(index: Path) -> list[str]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{index} is not an index of weight files: {error}") from error
    strange = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if strange or not names:
        raise ModelFolderError(f"{index} names weight files outside its folder, or none: {strange}")
    return sorted(names)


def _no_weights(folder: Path) -> str:
    pickled = [path.name for pattern in _PICKLED for path in sorted(folder.glob(pattern))]
    if pickled:
        return (
            f"{folder} has weights in {pickled[0]} only, a format that can run code when it is read; "
            "convert them to safetensors"
        )
    return f"{folder} has no weights: neither {SINGLE_FILE} nor {INDEX_FILE}"


def _check_whole(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start == b"version ":
            raise ModelFolderError(f"{path} is a Git LFS pointer, not the weights; run `git lfs pull` there")
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
            raise ModelFolderError(f"{path} is not a safetensors file, or is cut off")
        try:
            header = json.loads(file.read(length))
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFolderError(f"{path} has a broken safetensors header") from error
    if 8 + length + end != size:
        raise ModelFolderError(f"{path} has {size} bytes where its header says {8 + length + end}; copy it again")
