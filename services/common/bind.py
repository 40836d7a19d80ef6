"""Listening addresses: what they look like, whether they are free, and who may be let in through them."""

import errno
import ipaddress
import socket
from collections.abc import Iterable

from services.common.config import ConfigError

# What sun_path holds on Linux, less the closing zero.
_UNIX_PATH_BYTES = 107


def split_host_port(address: str) -> tuple[str, int]:
    """Takes "host:port" or "[::1]:port" apart; raises ConfigError for anything else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{address!r} is not an address; use host:port with a port up to 65535")
    return host.strip("[]"), int(port)


def require_free(address: str) -> None:
    """Raises ConfigError for a malformed address and for a UNIX socket that another process serves."""
    path = address.removeprefix("unix:")
    if path == address:
        split_host_port(address)
        return
    path = path.removeprefix("//")
    if len(path.encode()) > _UNIX_PATH_BYTES:
        raise ConfigError(f"{address} is longer than the {_UNIX_PATH_BYTES} bytes that a UNIX socket's path may have")
    # grpc takes a socket file over without asking, so that its owner would go on serving nobody.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) in (0, errno.EAGAIN, errno.EINPROGRESS):
            raise ConfigError(f"cannot listen on {address}; another process serves it")


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
