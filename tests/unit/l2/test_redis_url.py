"""Redis URLs: what is said is used, what is not understood stops the start."""

import pytest

from services.common.config import ConfigError
from services.runner.l2.redis_url import TlsOptions, parse_redis_url


def test_a_unix_url_names_a_socket() -> None:
    target = parse_redis_url("unix:///run/a%20b.sock?db=3&password=p%40ss")
    assert (target.path, target.database, target.password, target.name) == ("/run/a b.sock", 3, "p@ss", "/run/a b.sock")


def test_a_redis_url_names_host_user_and_database() -> None:
    target = parse_redis_url("redis://user:p%3Ass@host:1234/5")
    assert (target.host, target.port, target.database) == ("host", 1234, 5)
    assert (target.username, target.password, target.tls) == ("user", "p:ss", None)
    assert parse_redis_url("redis://").name == "localhost:6379"
    assert parse_redis_url("redis://:secret@[::1]:7000").host == "::1"


def test_a_rediss_url_verifies_the_server_unless_told_otherwise() -> None:
    assert parse_redis_url("rediss://host").tls == TlsOptions()
    relaxed = parse_redis_url("rediss://host?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem").tls
    assert relaxed == TlsOptions(ca_file="/ca.pem", verifies_server=False, checks_hostname=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host",
        "unix://relative:hunter2",
        "redis://user:hunter2@host:port",
        "redis://user:hunter2@host/x",
        "redis://user:hunter2@host?socket_timeout=3",
        "",
    ],
)
def test_an_url_that_cannot_be_used_stops_the_start_without_showing_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="Redis URL") as caught:
        parse_redis_url(url)
    assert "hunter2" not in str(caught.value)
