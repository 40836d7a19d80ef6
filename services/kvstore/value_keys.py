"""The names of our values in Redis: headrace:1:{namespace}:{id}, the namespace hashed and the id never used twice."""

import hashlib
import hmac
import secrets

_PREFIX = "headrace:1:"
SCAN_PATTERN = _PREFIX + "*"
_NAMESPACE_DIGITS = 32
_ID_DIGITS = 24


def hash_namespace(secret: bytes, tenant_namespace: str) -> str:
    """Hashes a namespace, so that Redis shows no tenant's name and another deployment's values are not ours."""
    digest = hmac.new(secret, b"namespace:" + tenant_namespace.encode(), hashlib.sha256)
    return digest.hexdigest()[:_NAMESPACE_DIGITS]


def new_value_key(namespace_hash: str) -> str:
    """Makes the key of a value to be written; values are immutable, so no two share one."""
    return f"{_PREFIX}{namespace_hash}:{secrets.token_hex(_ID_DIGITS // 2)}"


def new_lease_id() -> int:
    """Makes a lease id that no earlier kvstore process has given out either."""
    return secrets.randbits(63)


def namespace_of(value_key: str) -> str | None:
    """Reads the namespace's hash out of a key from Redis; None for a key that we did not make."""
    if not value_key.startswith(_PREFIX):
        return None
    namespace_hash, _, value_id = value_key.removeprefix(_PREFIX).partition(":")
    is_ours = _is_hex(namespace_hash, _NAMESPACE_DIGITS) and _is_hex(value_id, _ID_DIGITS)
    return namespace_hash if is_ours else None


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and all(character in "0123456789abcdef" for character in text)
