"""The folder where a local instance keeps its state, logs, secrets and sockets."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.local.failure import LocalFailure
from headrace.local.private_files import open_private

# The kernel's limit is 108 bytes with the final zero, 104 on macOS.
_SOCKET_PATH_BYTES = 100
_LONGEST_SOCKET_NAME = "scheduler.sock"


def default_data_dir() -> Path:
    """Returns $HEADRACE_DATA_DIR, else headrace below the user's state directory."""
    chosen = os.environ.get("HEADRACE_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    state_home = os.environ.get("XDG_STATE_HOME")
    return (Path(state_home) if state_home else Path.home() / ".local" / "state") / "headrace"


class DataDir:
    """The paths below one data directory."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self.logs = self.root / "logs"
        self.state_file = self.root / "state.json"
        self.cluster_token_file = self.root / "cluster_token"
        self.kv_secret_file = self.root / "kv_secret"

    def log_file(self, service: str) -> Path:
        """Returns where a service's output goes."""
        return self.logs / f"{service}.log"

    def create(self) -> None:
        """Makes the folders, private because they hold secrets; those of the user stay as they are."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable(error) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds this data directory for one instance; the kernel lets go of it when the process ends."""
        try:
            lock = open_private(self.root / "lock", "w")
        except OSError as error:
            raise self._unusable(error) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LocalFailure(
                    f"a Headrace runs already with the data directory {self.root}; `headrace status` shows it, "
                    "`headrace down` stops it, `headrace up --data-dir DIR --port-base P` starts another beside it"
                ) from None
            yield

    @contextlib.contextmanager
    def socket_folder(self) -> Iterator[Path]:
        """Yields a private folder whose paths are short enough for UNIX sockets; removes it at the end."""
        folder = self.root / "run"
        if _fits(folder) and _has_made_way(folder):
            folder.mkdir(mode=0o700)
        else:
            folder = _short_private_folder()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _unusable(self, error: OSError) -> LocalFailure:
        return LocalFailure(f"cannot use the data directory {self.root}: {error}; choose another --data-dir")

    def write_secret(self, path: Path, text: str) -> None:
        """Writes a file that only its owner can read."""
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)


def _has_made_way(folder: Path) -> bool:
    """Removes the sockets that a killed instance left; a folder that holds anything else is the user's and stays."""
    if not os.path.lexists(folder):
        return True
    if folder.is_symlink() or not folder.is_dir() or not all(entry.is_socket() for entry in folder.iterdir()):
        return False
    shutil.rmtree(folder)
    return True


def _short_private_folder() -> Path:
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a private folder there
        if _fits(Path(parent) / "headrace-12345678"):
            return Path(tempfile.mkdtemp(prefix="headrace-", dir=parent))
    raise LocalFailure("no folder has a path short enough for UNIX sockets; choose a shorter --data-dir")


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / _LONGEST_SOCKET_NAME)) < _SOCKET_PATH_BYTES
