"""Refuses to listen beyond this machine without authentication."""

import ipaddress
from collections.abc import Iterable

from services.common.config import ConfigError


def is_loopback(address: str) -> bool:
    """Tells whether a listening address ("host:port", "[::1]:port", "unix:/path") stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_safe_bind(addresses: Iterable[str], *, is_authenticated: bool, allow_insecure: bool, way_out: str) -> None:
    """Raises ConfigError for a non-loopback address that anybody could call."""
    if is_authenticated or allow_insecure:
        return
    for address in addresses:
        if not is_loopback(address):
            raise ConfigError(
                f"{address} can be reached from other machines and nothing authenticates its callers; {way_out}, "
                "listen on 127.0.0.1, or set HEADRACE_PROCESS_ALLOW_INSECURE_BIND=true on a private network"
            )
