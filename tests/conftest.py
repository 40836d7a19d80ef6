"""Fixtures that several test folders share; this file also puts its folder on the path: `import valkey_server`."""

from collections.abc import Iterator

import pytest
from valkey_server import ValkeyServer


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    """A running Valkey of the test's own, empty, without a memory limit."""
    with ValkeyServer() as server:
        yield server
