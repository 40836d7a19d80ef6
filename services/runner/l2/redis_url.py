"""Reads a Redis URL as far as the byte path needs it; the same URL serves the kvstore's client."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from services.common.config import ConfigError

_KNOWN_OPTIONS = {
    "db",
    "username",
    "password",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
}
_FORMS = "unix:///path/to/socket?db=0, redis://user:password@host:6379/0 or rediss://…"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How a rediss:// server is verified, and how this client shows who it is."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    verifies_server: bool = True
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """Where a Redis server is and how to log in; path or host is set."""

    path: str | None
    host: str | None
    port: int
    database: int
    username: str | None
    password: str | None
    tls: TlsOptions | None

    @property
    def name(self) -> str:
        """Names the server without its credentials."""
        return self.path if self.path is not None else f"{self.host}:{self.port}"


def parse_redis_url(url: str) -> RedisTarget:
    """Parses a unix, redis or rediss URL; raises ConfigError, which never repeats the password."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - _KNOWN_OPTIONS
    if unknown:
        raise ConfigError(
            f"Redis URL: unknown option {sorted(unknown)[0]!r}; known: {', '.join(sorted(_KNOWN_OPTIONS))}"
        )
    is_unix = parts.scheme == "unix"
    if parts.scheme not in ("unix", "redis", "rediss"):
        raise ConfigError(f"Redis URL: scheme {parts.scheme!r} is not known; write {_FORMS}")
    path = unquote(parts.path)
    if is_unix and not path.startswith("/"):
        raise ConfigError(f"Redis URL: a unix URL needs an absolute path; write {_FORMS}")
    try:
        port = parts.port or 6379
        database = int(options.get("db") or ("0" if is_unix else path.strip("/") or "0"))
    except ValueError as error:
        raise ConfigError(f"Redis URL: port or database is not a number; write {_FORMS}") from error
    return RedisTarget(
        path=path if is_unix else None,
        host=None if is_unix else unquote(parts.hostname or "localhost"),
        port=port,
        database=database,
        username=options.get("username") or _decoded(parts.username),
        password=options.get("password") or _decoded(parts.password),
        tls=_tls_options(options) if parts.scheme == "rediss" else None,
    )


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _tls_options(options: dict[str, str]) -> TlsOptions:
    verifies = options.get("ssl_cert_reqs", "required") != "none"
    return TlsOptions(
        ca_file=options.get("ssl_ca_certs"),
        certificate_file=options.get("ssl_certfile"),
        key_file=options.get("ssl_keyfile"),
        verifies_server=verifies,
        checks_hostname=verifies and options.get("ssl_check_hostname", "true").lower() in ("true", "yes", "1"),
    )
