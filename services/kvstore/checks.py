"""Refuses requests that make no sense, with the field and the limit."""

from collections.abc import Sequence

from services.common.errors import InvalidRequest
from services.common.value_header import BLOCK_KEY_BYTES, MAX_BLOCKS

MAX_NAMESPACE_CHARACTERS = 256
MAX_BLOCK_BYTES = 256 * 1024 * 1024


def check_namespace(tenant_namespace: str) -> None:
    """Raises InvalidRequest for a namespace that is empty or too long."""
    if not 1 <= len(tenant_namespace) <= MAX_NAMESPACE_CHARACTERS:
        raise InvalidRequest(
            "tenant_namespace", f"has {len(tenant_namespace)} characters; it needs 1 to {MAX_NAMESPACE_CHARACTERS}"
        )


def check_block_keys(block_keys: Sequence[bytes]) -> None:
    """Raises InvalidRequest for a chain that is too long, or a key that is none."""
    if len(block_keys) > MAX_BLOCKS:
        raise InvalidRequest("block_keys", f"holds {len(block_keys)} keys; at most {MAX_BLOCKS} go into one request")
    for place, key in enumerate(block_keys):
        if len(key) != BLOCK_KEY_BYTES:
            raise InvalidRequest(
                f"block_keys[{place}]", f"has {len(key)} bytes; a key is a SHA-256 digest of {BLOCK_KEY_BYTES}"
            )


def check_block_bytes(block_bytes: int) -> None:
    """Raises InvalidRequest for a size that no block has."""
    if not 1 <= block_bytes <= MAX_BLOCK_BYTES:
        raise InvalidRequest("block_bytes", f"is {block_bytes}; a block has 1 to {MAX_BLOCK_BYTES} bytes")
