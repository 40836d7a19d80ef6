"""generation_config.json gives the defaults, and a broken one stops the start."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.model_folder import ModelFolderError
from services.gateway.defaults import ModelDefaults, load_defaults


def folder_with(tmp_path: Path, config: Any) -> Path:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_model_without_the_file_has_the_apis_defaults(tmp_path: Path) -> None:
    assert load_defaults(tmp_path) == ModelDefaults(1.0, 1.0, 0)


def test_the_models_own_values_are_used(tmp_path: Path) -> None:
    config = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "do_sample": True}
    assert load_defaults(folder_with(tmp_path, config)) == ModelDefaults(0.6, 0.9, 20)


def test_a_model_that_does_not_sample_is_greedy(tmp_path: Path) -> None:
    assert load_defaults(folder_with(tmp_path, {"do_sample": False, "temperature": 0.6})).temperature == 0


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    assert load_defaults(folder_with(tmp_path, {"repetition_penalty": 1.05})).ignored == ("repetition_penalty",)


@pytest.mark.parametrize("config", [{"temperature": "hot"}, {"top_p": 2}, {"top_k": -5}, [], {"temperature": True}])
def test_a_value_that_makes_no_sense_stops_the_start(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ModelFolderError, match="generation_config"):
        load_defaults(folder_with(tmp_path, config))
