"""What an instance writes is for its owner only, and what the user has there already stays."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.local.data_dir import DataDir
from headrace.local.detached import start_detached
from headrace.local.failure import LocalFailure
from headrace.local.log_file import LogFile
from headrace.local.plan import UpOptions
from headrace.local.state import InstanceState, ProcessId, write_state


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_and_all_files_are_private(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    data_dir.create()
    with data_dir.locked(), LogFile(data_dir.log_file("gateway")).open():
        write_state(data_dir.state_file, InstanceState(ProcessId(1, 2.0), "m", True, (), "/sockets"))
    assert [mode(folder) for folder in (data_dir.root, data_dir.logs)] == [0o700] * 2
    files = (data_dir.state_file, data_dir.root / "lock", data_dir.log_file("gateway"))
    assert [mode(file) for file in files] == [0o600] * 3


def test_files_of_an_earlier_version_become_private_and_a_users_folder_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    data_dir = DataDir(tmp_path)
    data_dir.create()
    for path in (tmp_path / "lock", data_dir.log_file("gateway")):
        path.touch(0o644)
    with data_dir.locked():
        LogFile(data_dir.log_file("gateway"))
    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "lock") == 0o600
    assert mode(data_dir.logs / "gateway.log.1") == 0o600


def test_a_folder_of_the_user_is_never_taken_for_the_socket_folder(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.csv").write_text("mine")
    with data_dir.socket_folder() as folder:
        assert folder != tmp_path / "run"
    assert (tmp_path / "run" / "results.csv").read_text() == "mine"


def test_sockets_that_a_killed_instance_left_are_replaced(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    (tmp_path / "run").mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "run" / "redis.sock"))
    with data_dir.socket_folder() as folder:
        assert mode(folder) == 0o700
        assert list(folder.iterdir()) == []


def test_a_data_directory_that_cannot_be_written_is_a_clear_failure(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(LocalFailure, match="cannot use the data directory"), DataDir(tmp_path).locked():
        pass


def test_a_second_detached_start_leaves_the_running_instances_log_alone(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    data_dir.create()
    log = data_dir.log_file("supervisor")
    log.write_text("of the running instance\n")
    with data_dir.locked(), pytest.raises(LocalFailure, match="a Headrace runs already"):
        start_detached(UpOptions(model="m", data_dir=str(tmp_path)), lambda _news: None)
    assert log.read_text() == "of the running instance\n"
    assert not log.with_suffix(".log.1").exists()


def test_a_log_that_grew_too_long_makes_room_while_its_process_goes_on_writing(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "runner-0.log", longest_bytes=10)
    script = "import sys\nfor line in sys.stdin: print('said', line, end='', flush=True); print(file=sys.stderr)"
    with (
        log.open() as output,
        subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stderr is not None
        for line in ("first", "second"):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            process.stderr.readline()  # it has written the line
            log.make_room()
        process.stdin.close()
    assert (tmp_path / "runner-0.log.1").read_text() == "said second\n"
    assert log.path.read_bytes() == b""
    assert mode(tmp_path / "runner-0.log.1") == 0o600


def test_a_short_log_stays(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "runner-0.log", longest_bytes=10)
    log.make_room()
    log.path.write_text("short\n")
    log.make_room()
    assert log.tail() == ["short"]
