"""The small parts of a local instance: ports, data directory, state, restarts, logs."""

import json
import os
import socket
import stat
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from headrace.local.data_dir import DataDir, default_data_dir
from headrace.local.failure import LocalFailure
from headrace.local.log_file import LogFile, readable
from headrace.local.ports import OFFSETS, Ports, require_free
from headrace.local.restart_policy import RestartPolicy
from headrace.local.state import InstanceState, ProcessId, ServiceState, read_state, write_state


def test_default_ports_are_those_of_the_documentation() -> None:
    ports = Ports()
    assert {name: ports.of(name) for name in OFFSETS} == {
        "gateway": 50051,
        "scheduler": 50052,
        "runner-0": 50053,
        "kvstore": 50054,
        "gateway admin": 50061,
        "gateway HTTP": 8080,
        "gateway metrics": 9091,
        "scheduler metrics": 9092,
        "runner-0 metrics": 9093,
        "kvstore metrics": 9094,
    }


@pytest.mark.parametrize("base", [None, 52000])
def test_no_two_listeners_of_an_instance_share_a_port(base: int | None) -> None:
    ports = Ports(base)
    numbers = [ports.of(name) for name in ports.names(runners=50)]
    assert len(set(numbers)) == len(numbers)


def test_a_port_base_moves_everything() -> None:
    ports = Ports(52000)
    assert ports.address("gateway") == "127.0.0.1:52001"
    assert ports.of("gateway HTTP") == 52080
    assert all(52000 < ports.of(name) < 52200 for name in ports.names(runners=50))


@pytest.mark.parametrize("base", [80, 65500])
def test_an_impossible_port_base_is_refused_with_the_range(base: int) -> None:
    with pytest.raises(LocalFailure, match="choose 1024 to"):
        Ports(base)


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = Ports(taken.getsockname()[1] - OFFSETS["scheduler"])
        with pytest.raises(LocalFailure) as failure:
            require_free(ports, runners=1)
    assert f"{ports.of('scheduler')} (scheduler)" in str(failure.value)
    assert "headrace down" in str(failure.value)
    assert "--port-base" in str(failure.value)


def test_the_data_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert default_data_dir() == Path("/somewhere/state/headrace")
    monkeypatch.setenv("HEADRACE_DATA_DIR", "/elsewhere")
    assert default_data_dir() == Path("/elsewhere")


def test_one_data_directory_holds_one_instance(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    data_dir.create()
    with data_dir.locked(), pytest.raises(LocalFailure, match="headrace down"), DataDir(tmp_path).locked():
        pass
    with data_dir.locked():
        pass


def test_sockets_of_a_deep_data_directory_get_a_short_private_folder(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / ("deep" * 20))
    data_dir.create()
    with data_dir.socket_folder() as folder:
        assert len(os.fsencode(folder / "scheduler.sock")) < 100
        assert folder.parent == Path(tempfile.gettempdir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_secrets_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    data_dir.write_secret(data_dir.cluster_token_file, "first")
    data_dir.write_secret(data_dir.cluster_token_file, "second")
    assert data_dir.cluster_token_file.read_text() == "second"
    assert stat.S_IMODE(data_dir.cluster_token_file.stat().st_mode) == 0o600


def test_state_survives_the_file(tmp_path: Path) -> None:
    service = ServiceState(
        "gateway", ProcessId(1, 2.0), "127.0.0.1:50051", "/log", "m", "http://h", "127.0.0.1:9091", 3
    )
    state = InstanceState(ProcessId(7, 8.5), "m", True, (service,), "/sockets")
    write_state(tmp_path / "state.json", state)
    assert read_state(tmp_path / "state.json") == state
    assert read_state(tmp_path / "absent.json") is None


def test_a_broken_state_file_is_a_clear_failure(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"format": 99}')
    with pytest.raises(LocalFailure, match=r"state.json cannot be read \(format 99 is not 1\)"):
        read_state(tmp_path / "state.json")


def test_a_process_that_took_over_a_number_is_not_ours() -> None:
    own = ProcessId.of(os.getpid())
    assert own.find() == psutil.Process()
    assert ProcessId(own.pid, own.started_unix_seconds - 60).find() is None


def test_quick_deaths_pause_longer_each_time_and_end_the_attempts() -> None:
    policy = RestartPolicy()
    assert [policy.pause_after(1.0) for _ in range(5)] == [0.25, 0.5, 1.0, 2.0, None]


def test_a_long_life_forgives_earlier_deaths() -> None:
    policy = RestartPolicy(quick_deaths=4)
    assert policy.pause_after(3600.0) == 0.25


def test_an_end_on_request_is_no_death() -> None:
    policy = RestartPolicy(quick_deaths=4)
    assert [policy.pause_after(1.0, was_asked=True) for _ in range(6)] == [0.25] * 6
    assert policy.pause_after(1.0) is None


def test_a_log_tail_is_that_of_the_last_start_in_readable_form(tmp_path: Path) -> None:
    path = tmp_path / "runner-0.log"
    path.write_text("of the run before\n")
    log = LogFile(path)
    assert path.with_suffix(".log.1").read_text() == "of the run before\n"
    path.write_text("of the first child\n")
    log.mark_start()
    with path.open("a") as file:
        file.write(json.dumps({"ts": "t", "level": "info", "event": "loading weights", "stage": None}) + "\nplain\n")
    assert log.tail() == ["info  loading weights", "plain"]
    assert log.last_event() == "loading weights"


def test_a_logged_exception_keeps_its_lines() -> None:
    line = json.dumps({"level": "error", "event": "crashed", "exception": "Traceback:\nValueError: no", "port": 3})
    assert readable(line) == "error  crashed  port=3\nTraceback:\nValueError: no"


def test_the_command_line_starts_without_the_heavy_imports() -> None:
    """`headrace --help` must be quick, so what a command needs is imported when it runs."""
    import subprocess

    script = (
        "import sys, headrace.cli.main; print([m for m in ('grpc', 'psutil', 'httpx', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
