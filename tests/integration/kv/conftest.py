"""Fixtures of the kvstore's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kvstore_harness import KvStore, serving
from valkey_server import ValkeyServer


@pytest.fixture
def folder(valkey: ValkeyServer) -> Path:
    """A folder whose path is short enough for a socket."""
    return valkey.folder


@pytest.fixture
async def kvstore(valkey: ValkeyServer, folder: Path) -> AsyncIterator[KvStore]:
    async with serving(folder, valkey.url) as kvstore:
        yield kvstore
