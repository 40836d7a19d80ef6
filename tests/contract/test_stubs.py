"""The protos, their stubs, and what earlier clients rely on."""

import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_the_committed_stubs_are_those_of_the_protos(tmp_path):
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "protos/headrace/v1").glob("*.proto"))
    plugins = [f"--plugin=protoc-gen-{name}={BIN}/protoc-gen-{name}" for name in ("mypy", "mypy_grpc")]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")]
    run(sys.executable, "-m", "grpc_tools.protoc", "-Iprotos", *plugins, *outputs, *protos)

    fresh = {path.name: path.read_text() for path in (tmp_path / "headrace/v1").iterdir()}
    folder = ROOT / "headrace/v1"
    committed = {path.name: path.read_text() for path in folder.glob("*_pb2*.py*")}
    assert sorted(fresh) == sorted(committed), "run `make protos` and commit what it changes"
    changed = [name for name in fresh if fresh[name] != committed[name]]
    assert not changed, f"{', '.join(changed)}: run `make protos` and commit what it changes"


def test_the_protos_keep_to_the_style():
    run(str(BIN / "buf"), "lint")


def test_the_protos_break_no_client_of_the_main_branch():
    branches = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "main:protos"], cwd=ROOT, capture_output=True, check=False
    )
    if branches.returncode != 0:
        pytest.skip("this checkout has no main branch to compare with")
    run(str(BIN / "buf"), "breaking", "--against", ".git#branch=main")
