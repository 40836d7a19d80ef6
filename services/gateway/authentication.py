"""Turns an Authorization header into a caller; keys are known by their hashes only."""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from services.common.config import ConfigError
from services.common.errors import Unauthenticated
from services.gateway.caller import PUBLIC_TENANT, Caller, caller_of

_SCHEME = "bearer "
_HASH_DIGITS = 64


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A tenant's key, hashed."""

    tenant: str
    sha256: bytes


class Authentication:
    """Checks API keys; without keys everybody is the public tenant."""

    def __init__(self, keys: tuple[ApiKey, ...] | None) -> None:
        self._keys = keys

    @property
    def is_required(self) -> bool:
        """Tells whether callers need a key."""
        return self._keys is not None

    def authenticate(self, header: str | None) -> Caller:
        """Returns the caller of an Authorization header; raises Unauthenticated for a missing or unknown key."""
        if self._keys is None:
            return caller_of(PUBLIC_TENANT)
        if header is None:
            raise Unauthenticated("no API key; send the header 'Authorization: Bearer KEY'")
        if not header.lower().startswith(_SCHEME):
            raise Unauthenticated("the Authorization header has another scheme; send 'Authorization: Bearer KEY'")
        given = hashlib.sha256(header[len(_SCHEME) :].strip().encode("utf-8", "surrogatepass")).digest()
        # Every key is compared, so that the time taken tells nothing about which one was close.
        matches = [key.tenant for key in self._keys if hmac.compare_digest(key.sha256, given)]
        if not matches:
            raise Unauthenticated("this API key is not known; check the key, or ask the operator for one")
        return caller_of(matches[0])


def load_authentication(path: str | None) -> Authentication:
    """Reads a file of `tenant:sha256-hex-of-key` lines; no path means no authentication."""
    if path is None:
        return Authentication(None)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"HEADRACE_GATEWAY_API_KEYS_FILE: {path} cannot be read: {error}") from error
    keys = [
        _parse_key(path, number, line.strip())
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise ConfigError(f"HEADRACE_GATEWAY_API_KEYS_FILE: {path} holds no key, so nobody could call")
    return Authentication(tuple(keys))


def _parse_key(path: str, number: int, line: str) -> ApiKey:
    tenant, _, digits = line.rpartition(":")
    try:
        digest = bytes.fromhex(digits.strip())
    except ValueError:
        digest = b""
    if not tenant.strip() or len(digest) * 2 != _HASH_DIGITS:
        raise ConfigError(
            f"HEADRACE_GATEWAY_API_KEYS_FILE: line {number} of {path} is not tenant:HASH; "
            "the hash is the SHA-256 of the key, 64 hexadecimal digits (printf %s KEY | sha256sum)"
        )
    return ApiKey(tenant.strip(), digest)
