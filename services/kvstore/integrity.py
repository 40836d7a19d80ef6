"""The secret of a deployment, and the key under which a tenant's values are signed."""

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import structlog

from services.common.config import ConfigError

SECRET_BYTES = 32
MIN_SECRET_CHARACTERS = 16

log = structlog.get_logger()


def integrity_key(secret: bytes, tenant_namespace: str) -> bytes:
    """Derives the key that signs a namespace's values; nobody learns another namespace's key from it."""
    return hmac.new(secret, b"integrity:" + tenant_namespace.encode(), hashlib.sha256).digest()


def new_secret() -> bytes:
    """Makes a secret."""
    return secrets.token_hex(SECRET_BYTES).encode()


def load_or_create_secret(path: Path) -> bytes:
    """Reads the secret file, made with mode 0600 when it is missing; raises ConfigError for one that cannot be used."""
    try:
        if not path.exists():
            _create(path)
        secret = path.read_bytes().strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ConfigError(
            f"secret file {path}: {error.strerror}; name a file in a folder that can be written"
        ) from error
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise ConfigError(
            f"secret file {path} holds {len(secret)} characters, it needs {MIN_SECRET_CHARACTERS}; "
            "delete it to have a new one made"
        )
    if mode & stat.S_IROTH:
        log.warning("anybody on this machine can read the secret file; chmod 600 it", path=str(path), mode=oct(mode))
    return secret


def _create(path: Path) -> None:
    """Makes the file whole or not at all; whoever comes second uses the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp gives mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new_secret() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
