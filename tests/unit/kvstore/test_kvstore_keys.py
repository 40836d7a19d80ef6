"""Names and secrets: tenants and deployments do not meet, and the secret stays one."""

import os
import stat
import threading
from pathlib import Path

import pytest

from services.common.config import ConfigError, config_from_env
from services.kvstore.config import KvStoreConfig
from services.kvstore.integrity import integrity_key, load_or_create_secret, new_secret
from services.kvstore.value_keys import hash_namespace, namespace_of, new_value_key


def test_a_value_key_names_its_namespace_and_no_two_are_the_same() -> None:
    namespace = hash_namespace(b"secret", "tenant-a")
    made = {new_value_key(namespace) for _ in range(1000)}
    assert len(made) == 1000
    assert {namespace_of(value_key) for value_key in made} == {namespace}
    assert all(value_key.startswith("headrace:1:") and "tenant" not in value_key for value_key in made)


@pytest.mark.parametrize(
    "foreign",
    ["", "headrace:1:", "headrace:2:" + "a" * 32 + ":" + "b" * 24, "headrace:1:short:" + "b" * 24, "user:17"],
)
def test_a_key_that_we_did_not_make_has_no_namespace(foreign: str) -> None:
    assert namespace_of(foreign) is None


def test_tenants_and_deployments_differ_in_names_and_keys() -> None:
    """KV-1: no two (secret, namespace) pairs meet, not even when one's text continues in the other."""
    pairs = [(b"s1", "ab"), (b"s1", "a"), (b"s2", "ab"), (b"s1", "namespace:ab"), (b"s1", "")]
    names = [hash_namespace(*pair) for pair in pairs]
    keys = [integrity_key(*pair) for pair in pairs]
    assert len({*names, *(key.hex()[:32] for key in keys)}) == 2 * len(pairs)
    assert all(len(key) == 32 for key in keys)


def test_a_missing_secret_is_made_for_its_owner_only_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    secret = load_or_create_secret(path)
    assert len(secret) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_secret(path) == secret
    assert os.listdir(path.parent) == ["secret"]


def test_processes_that_start_together_use_one_secret(tmp_path: Path) -> None:
    path, secrets = tmp_path / "secret", []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        secrets.append(load_or_create_secret(path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(secrets) == 8
    assert len(set(secrets)) == 1


def test_a_secret_too_short_or_out_of_reach_stops_the_start(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("abc\n")
    with pytest.raises(ConfigError, match="3 characters"):
        load_or_create_secret(short)
    with pytest.raises(ConfigError, match="secret file"):
        load_or_create_secret(short / "below-a-file")


def test_two_made_secrets_differ() -> None:
    assert new_secret() != new_secret()


@pytest.mark.parametrize("name", ["VALUE_MIB", "LEASE_SECONDS", "MAX_BLOCKS", "VALUE_EXPIRY_SECONDS"])
def test_a_setting_that_makes_no_sense_stops_the_start_and_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name.lower()):
        config_from_env(KvStoreConfig, "HEADRACE_KVSTORE_", {f"HEADRACE_KVSTORE_{name}": "0"})
