"""What `headrace up` plans to start."""

import dataclasses
from pathlib import Path

import pytest

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.plan import StackPlan, UpOptions, plan_stack, resolve_model, stop_order
from services.common.config import ProcessConfig, config_from_env
from services.gateway.config import GatewayConfig
from services.kvstore.config import KvStoreConfig
from services.runner.config import RunnerConfig
from services.scheduler.config import SchedulerConfig


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)


def plan(tmp_path: Path, **options: object) -> StackPlan:
    model = tmp_path / "a-model"
    model.mkdir(exist_ok=True)
    chosen = UpOptions(model=str(model), data_dir=str(tmp_path), **options)  # type: ignore[arg-type]
    return plan_stack(chosen, DataDir(tmp_path), tmp_path / "run", cluster_token="secret")


def test_every_variable_is_one_that_its_service_knows(tmp_path: Path) -> None:
    configs = {
        "gateway": GatewayConfig,
        "scheduler": SchedulerConfig,
        "runner-0": RunnerConfig,
        "kvstore": KvStoreConfig,
    }
    for name, config in configs.items():
        environment = plan(tmp_path, dtype="bfloat16").service(name).environment
        prefix = f"HEADRACE_{name.removesuffix('-0').upper()}_"
        read = config_from_env(config, prefix, environment)
        assert dataclasses.is_dataclass(read)
        assert config_from_env(ProcessConfig, "HEADRACE_PROCESS_", environment).cluster_token == "secret"


def test_processes_start_suppliers_first_and_stop_clients_first(tmp_path: Path) -> None:
    stack = plan(tmp_path, runners=2)
    assert [service.name for service in stack.services] == [
        "redis",
        "kvstore",
        "scheduler",
        "runner-0",
        "runner-1",
        "gateway",
    ]
    order = stop_order(service.name for service in stack.services)
    assert order == ["gateway", "scheduler", "runner-0", "runner-1", "kvstore", "redis"]


def test_the_embedded_cache_has_no_tcp_port_and_no_file(tmp_path: Path) -> None:
    command = plan(tmp_path).service("redis").command
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert settings["--port"] == "0"
    assert settings["--save"] == ""
    assert settings["--appendonly"] == "no"
    assert settings["--maxmemory-policy"] == "allkeys-lru"


def test_a_redis_of_the_user_replaces_the_embedded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KVSTORE_REDIS_URL", "redis://elsewhere:6379/0")
    stack = plan(tmp_path)
    assert "redis" not in [service.name for service in stack.services]
    assert stack.service("runner-0").environment["HEADRACE_RUNNER_REDIS_URL"] == "redis://elsewhere:6379/0"


def test_without_any_redis_it_serves_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.local.plan.find_valkey", lambda: None)
    stack = plan(tmp_path)
    assert "without the second-level cache" in stack.notices[0]
    assert "HEADRACE_KVSTORE_REDIS_URL" not in stack.service("kvstore").environment


def test_several_runners_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    stack = plan(tmp_path, runners=4)
    assert [stack.service(f"runner-{k}").environment["HEADRACE_RUNNER_THREADS"] for k in range(4)] == ["2"] * 4
    assert not stack.service("runner-0").is_vital


def test_an_instance_is_worth_something_while_one_runner_and_every_vital_service_is_left(tmp_path: Path) -> None:
    stack = plan(tmp_path, runners=2)
    assert stack.can_serve_without(["redis", "kvstore", "runner-1"])
    assert not stack.can_serve_without(["runner-0", "runner-1"])
    assert not stack.can_serve_without(["gateway"])


@pytest.mark.parametrize("model", ["./nowhere", "no-such-thing", "a/b/c"])
def test_a_model_that_is_no_folder_is_refused_with_what_would_be_right(model: str) -> None:
    with pytest.raises(LocalFailure, match=r"no such folder; give --model a folder with config\.json, or a hub id"):
        resolve_model(model)


def test_a_folder_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(LocalFailure, match=r"no config\.json in it"):
        resolve_model(str(tmp_path))


def test_a_hub_id_is_left_as_it_is() -> None:
    assert resolve_model("org/name") == "org/name"


@pytest.mark.parametrize("runners", [0, 51])
def test_the_number_of_runners_has_limits(runners: int) -> None:
    with pytest.raises(LocalFailure, match="choose 1 to 50"):
        UpOptions(model="m", data_dir="d", runners=runners)
