"""The HTTP API over a fake Generation, called in memory."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_generation import FakeGeneration, ready

from services.gateway.authentication import Authentication
from services.gateway.http.app import create_app


@pytest.fixture
def generation() -> FakeGeneration:
    return FakeGeneration()


@pytest.fixture
async def api(generation: FakeGeneration) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API without keys."""
    transport = httpx.ASGITransport(create_app(generation, Authentication(None), ready()))
    async with httpx.AsyncClient(transport=transport, base_url="http://headrace") as client:
        yield client
