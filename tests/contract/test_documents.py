"""What the documents say exists."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from tree import ROOT, name_of, python_files, tracked

from services.common.config import SHARED_PREFIX, ProcessConfig

DOCUMENTS = [path for path in tracked("*.md") if path.parent == ROOT or ROOT / "docs" in path.parents]
SERVICES = ("gateway", "scheduler", "runner", "kvstore")

# Of an instance and of compose, not of one process.
OUTER = {"HEADRACE_BASE_IMAGE", "HEADRACE_CLUSTER_TOKEN", "HEADRACE_MODELS_DIR", "HEADRACE_REDIS_IMAGE"}
OUTER |= {"HEADRACE_REDIS_PASSWORD"}

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"\bHEADRACE_[A-Z0-9_]+\b")


def anchors(path: Path) -> set[str]:
    """Returns the anchors of a document's headings, as code hosts make them."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    found = set()
    for heading in re.findall(r"^#+\s+(.*?)\s*#*$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_within_the_repository_leads_somewhere(path):
    broken = []
    for match in _LINK.finditer(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_path_in_backticks_exists(path):
    """Only what looks like a file or folder of ours: it begins with one of our folders."""
    folders = "protos|headrace|services|models|clients|tests|benchmarks|docs"
    text = path.read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{folders})/[\w./\-]+)`", _FENCE.sub("", text))
    assert not [name for name in named if not (ROOT / name).exists()]


def settings() -> set[str]:
    """Returns every variable that a process or the command line reads."""
    found = {SHARED_PREFIX + field.name.upper() for field in dataclasses.fields(ProcessConfig)}
    for service in SERVICES:
        module = importlib.import_module(f"services.{service}.config")
        config = next(
            value
            for name, value in vars(module).items()
            if name.lower() == f"{service}config" and dataclasses.is_dataclass(value)
        )
        found |= {f"HEADRACE_{service.upper()}_{field.name.upper()}" for field in dataclasses.fields(config)}
    client = [path for path in python_files() if ROOT / "headrace" in path.parents]
    return found | {name for path in client for name in _VARIABLE.findall(path.read_text(encoding="utf-8"))} | OUTER


def test_every_variable_that_is_written_about_is_read_by_somebody():
    known = settings()
    texts = [*DOCUMENTS, *tracked("docker-compose.yml", "Makefile", "*.sh", "k8s/*.yaml")]
    unknown = [
        f"{name_of(path)}: {name}"
        for path in texts
        for name in sorted(set(_VARIABLE.findall(path.read_text(encoding="utf-8"))))
        if name not in known and not _is_prefix(name, known)
    ]
    assert not unknown, "\n".join(unknown)


def _is_prefix(name: str, known: set[str]) -> bool:
    """HEADRACE_GATEWAY_ and HEADRACE_GATEWAY_* speak of a family of variables."""
    return name.endswith("_") and any(variable.startswith(name) for variable in known)


def test_every_variable_that_compose_sets_has_a_meaning():
    """Compose passes what it sets to the process; an unknown variable would stop it."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    passed = set(re.findall(r"^\s+(HEADRACE_[A-Z_]+):", text, re.MULTILINE))

    assert passed
    assert passed <= settings() - OUTER
