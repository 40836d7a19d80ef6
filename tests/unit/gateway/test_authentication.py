"""Keys are known by their hashes; who has none, or a wrong one, learns only that."""

import hashlib
from pathlib import Path

import pytest

from services.common.config import ConfigError
from services.common.errors import Unauthenticated
from services.gateway.authentication import load_authentication


def key_file(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "keys"
    path.write_text("\n".join(lines))
    return str(path)


def line(tenant: str, key: str) -> str:
    return f"{tenant}:{hashlib.sha256(key.encode()).hexdigest()}"


def test_a_key_names_its_tenant_and_the_tenant_its_own_cache(tmp_path: Path) -> None:
    authentication = load_authentication(
        key_file(tmp_path, "# staging", "", line("acme", "k1"), line("beta:eu", "k2"), line("acme", "k3"))
    )
    acme = authentication.authenticate("Bearer k1")
    assert acme.tenant == "acme"
    assert authentication.authenticate("bearer  k3 ") == acme
    beta = authentication.authenticate("Bearer k2")
    assert beta.tenant == "beta:eu"
    assert beta.namespace != acme.namespace


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic azE=", "k1", "Bearer \udcff"])
def test_a_missing_or_unknown_key_is_refused(tmp_path: Path, header: str | None) -> None:
    authentication = load_authentication(key_file(tmp_path, line("acme", "k1")))
    with pytest.raises(Unauthenticated):
        authentication.authenticate(header)


def test_without_a_file_everybody_is_the_public_tenant() -> None:
    authentication = load_authentication(None)
    assert not authentication.is_required
    assert authentication.authenticate(None).tenant == "public"
    assert authentication.authenticate("Bearer anything").tenant == "public"


@pytest.mark.parametrize("lines", [["acme"], ["acme:abc"], [":" + "0" * 64], ["acme:" + "g" * 64], [], ["# none"]])
def test_a_file_that_is_no_key_file_stops_the_start(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ConfigError, match="API_KEYS_FILE"):
        load_authentication(key_file(tmp_path, *lines))


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_authentication(str(tmp_path / "none"))
