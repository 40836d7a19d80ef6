"""One instance for the whole session, with the built-in model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Stack, free_port_base


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running instance; tests that break something leave it serving."""
    instance = Stack(tmp_path_factory.mktemp("instance"), free_port_base())
    started = instance.up()
    assert started.returncode == 0, started.stdout + started.stderr
    (instance.data_dir / "banner").write_text(started.stdout)
    yield instance
    instance.down()


@pytest.fixture
def second_place(tmp_path: Path) -> Iterator[Stack]:
    """Room for another instance, which a test may start."""
    instance = Stack(tmp_path / "second", free_port_base())
    yield instance
    instance.down()
