"""One instance whose spans go to a receiver of the test's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The instance is started as the end-to-end tests start theirs.
sys.path.append(str(Path(__file__).parents[2] / "e2e"))

from otlp_receiver import OtlpReceiver, otlp_receiver
from stack import free_port_base
from traced_stack import TracedStack


@pytest.fixture(scope="session")
def receiver() -> Iterator[OtlpReceiver]:
    """A running receiver."""
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[TracedStack]:
    """A running instance; tests that break something leave it serving."""
    instance = TracedStack(tmp_path_factory.mktemp("traced"), free_port_base(), receiver.endpoint)
    started = instance.up()
    assert started.returncode == 0, started.stdout + started.stderr
    yield instance
    instance.down()
