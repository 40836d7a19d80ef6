"""The commands where nothing runs, and `down` against real processes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import __version__
from headrace.cli.main import app
from headrace.local.data_dir import DataDir
from headrace.local.state import InstanceState, ProcessId, ServiceState, write_state

runner = CliRunner()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that would run for long."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def record(root: Path, process: ProcessId) -> None:
    service = ServiceState("runner-0", process, "127.0.0.1:1", str(root / "runner-0.log"), "a-model")
    gone = ProcessId(process.pid, 1.0)
    write_state(DataDir(root).state_file, InstanceState(gone, "a-model", True, (service,), str(root / "run")))


def test_version() -> None:
    assert runner.invoke(app, ["version"]).output == f"headrace {__version__}\n"


@pytest.mark.parametrize("command", [["status"], ["chat", "hello"], ["restart", "runner-0"]])
def test_a_command_that_needs_an_instance_says_how_to_start_one(command: list[str], tmp_path: Path) -> None:
    result = runner.invoke(app, [*command, "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert f"nothing runs in {tmp_path}; start it with " in result.output
    assert f" up --data-dir {tmp_path}`" in result.output


def test_down_where_nothing_runs_is_fine(tmp_path: Path) -> None:
    result = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "nothing runs" in result.output


def test_chat_with_an_address_where_nobody_answers_names_the_cause() -> None:
    result = runner.invoke(app, ["chat", "hello", "--address", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "UNAVAILABLE" in result.output


def test_down_ends_what_an_instance_without_supervisor_left(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    record(tmp_path, ProcessId.of(sleeper.pid))
    result = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "ending runner-0" in result.output
    assert sleeper.wait(10) != 0
    assert not DataDir(tmp_path).state_file.exists()


def test_down_leaves_a_process_alone_that_only_has_the_recorded_number(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    record(tmp_path, ProcessId(sleeper.pid, ProcessId.of(sleeper.pid).started_unix_seconds - 3600))
    result = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert sleeper.poll() is None


def test_status_tells_a_dead_process_from_one_that_does_not_answer(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    record(tmp_path, ProcessId.of(sleeper.pid))
    result = runner.invoke(app, ["status", "--json", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["services"][0]["health"] == "UNREACHABLE"
    sleeper.kill()
    sleeper.wait()
    result = runner.invoke(app, ["status", "--json", "--data-dir", str(tmp_path)])
    service = json.loads(result.stdout)["services"][0]
    assert service["health"] == "DEAD"
    assert {"name", "pid", "address", "health", "model"} <= set(service)
    assert (service["name"], service["model"]) == ("runner-0", "a-model")


def test_up_with_a_wrong_model_ends_before_it_starts_anything(tmp_path: Path) -> None:
    result = runner.invoke(app, ["up", "--model", "./nowhere", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "no such folder" in result.output
    assert not list(tmp_path.iterdir())
