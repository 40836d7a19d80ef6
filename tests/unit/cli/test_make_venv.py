"""Which Python `make` takes on a machine where several are on PATH, some of them broken."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


class Machine:
    """A PATH with stand-ins for interpreters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for tool in ("sh", "cat", "rm", "mkdir"):
            found = shutil.which(tool)
            assert found is not None
            (folder / tool).symlink_to(found)

    def add(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def add_python(self, name: str, version: str, *, has_venv: bool = True) -> None:
        self.add(
            name,
            f'case "$2" in *version_info*) echo {version};; *ensurepip*) exit {0 if has_venv else 1};; '
            f'venv) mkdir -p "$4"; echo {name} > "$4/made-with";; esac',
        )

    def make_venv(self, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", str(ROOT / "scripts" / "make_venv.sh"), str(self.folder.parent / "venv")],
            env={"PATH": str(self.folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def made_with(self) -> str:
        return (self.folder.parent / "venv" / "made-with").read_text().strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "bin")


def test_a_broken_shim_and_unsuitable_versions_are_passed_over(machine: Machine) -> None:
    machine.add("python3", 'echo "pyenv: python3: command not found" >&2; exit 127')
    machine.add_python("python3.13", "3.14")
    machine.add_python("python3.12", "3.12", has_venv=False)
    machine.add_python("python3.11", "3.11")
    result = machine.make_venv()
    assert result.returncode == 0, result.stderr
    assert machine.made_with() == "python3.11"


def test_a_chosen_python_is_taken(machine: Machine) -> None:
    machine.add_python("python3", "3.13")
    machine.add_python("mine", "3.12")
    assert machine.make_venv(PYTHON="mine").returncode == 0
    assert machine.made_with() == "mine"


def test_without_a_suitable_python_it_says_what_it_found_and_what_to_do(machine: Machine) -> None:
    machine.add_python("python3", "3.9")
    machine.add_python("python3.12", "3.12", has_venv=False)
    result = machine.make_venv()
    assert result.returncode == 1
    assert "python3 is Python 3.9; python3.12 lacks venv;" in result.stderr
    assert "apt install python3 python3-venv" in result.stderr
    assert not os.path.exists(machine.folder.parent / "venv")
