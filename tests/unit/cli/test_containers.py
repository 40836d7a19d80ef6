"""The compose file and the images, as far as they can be checked without a registry."""

import dataclasses
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.common.config import ProcessConfig
from services.gateway.config import GatewayConfig
from services.kvstore.config import KvStoreConfig
from services.runner.config import RunnerConfig
from services.scheduler.config import SchedulerConfig

ROOT = Path(__file__).parents[3]
CONFIGS = {"gateway": GatewayConfig, "scheduler": SchedulerConfig, "runner": RunnerConfig, "kvstore": KvStoreConfig}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """What the real Compose makes of the file, with nothing set by the user."""
    binary = Path(sys.executable).with_name("docker-compose")
    command = [str(binary), "-f", str(ROOT / "docker-compose.yml"), "config", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_variable_is_a_setting_of_its_service(compose: dict[str, Any]) -> None:
    for name, config in CONFIGS.items():
        own = {f"HEADRACE_{name.upper()}_{field.name.upper()}" for field in dataclasses.fields(config)}
        shared = {f"HEADRACE_PROCESS_{field.name.upper()}" for field in dataclasses.fields(ProcessConfig)}
        given = {variable for variable in compose["services"][name]["environment"] if variable.startswith("HEADRACE_")}
        assert given <= own | shared


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert {"50051", "8080"} <= {port["published"] for port in ports}
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_the_model_is_mounted_read_only(compose: dict[str, Any]) -> None:
    for name in ("gateway", "runner"):
        (volume,) = compose["services"][name]["volumes"]
        assert volume["target"] == "/models"
        assert volume["read_only"]
        assert Path(volume["source"]) == ROOT / "models"


def test_redis_keeps_nothing_on_disk_and_asks_for_a_password(compose: dict[str, Any]) -> None:
    command = compose["services"]["redis"]["command"][-1]
    for setting in (
        '--save ""',
        "--appendonly no",
        "--maxmemory 1gb",
        "--maxmemory-policy allkeys-lru",
        "--requirepass",
    ):
        assert setting in command


def test_every_container_is_confined(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_image_runs_as_nobody_in_particular_and_says_how_it_is(name: str) -> None:
    lines = (ROOT / "services" / name / "Dockerfile").read_text().splitlines()
    assert "ARG BASE_IMAGE=python:3.11-slim-bookworm" in lines
    assert "USER 10001:10001" in lines
    assert f'RUN /opt/headrace/bin/pip install ".[{name}]"' in lines
    assert any("services.common.health_probe" in line for line in lines)
    assert lines[-1] == f'ENTRYPOINT ["python", "-m", "services.{name}"]'


def required(extra: str) -> Iterator[str]:
    """Yields the packages that an extra asks for, through the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["optional-dependencies"][extra]:
        if requirement.startswith("headrace["):
            for inner in requirement.removeprefix("headrace[").rstrip("]").split(","):
                yield from required(inner)
        else:
            yield requirement


@pytest.mark.parametrize("extra", ["gateway", "scheduler", "kvstore"])
def test_only_the_runner_needs_torch(extra: str) -> None:
    assert not [name for name in required(extra) if name.startswith(("torch", "safetensors"))]
    assert [name for name in required("runner") if name.startswith("torch==")]
