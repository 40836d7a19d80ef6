"""What several commands share: the data directory option, the way a failure is shown, the running instance."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.local.data_dir import DataDir
    from headrace.local.state import InstanceState

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="HEADRACE_DATA_DIR",
        show_default=False,
        help="Where the instance keeps state, logs and secrets. Default: ~/.local/state/headrace.",
    ),
]


def data_dir_of(chosen: Path | None) -> "DataDir":
    """Returns the data directory that the option, the environment or the default names."""
    from headrace.local.data_dir import DataDir, default_data_dir

    return DataDir(chosen or default_data_dir())


def data_dir_flag(data_dir: "DataDir") -> str:
    """Returns what a copied command needs to find this data directory again."""
    from headrace.local.data_dir import DataDir, default_data_dir

    return "" if data_dir.root == DataDir(default_data_dir()).root else f" --data-dir {data_dir.root}"


def own_command() -> str:
    """Returns how this command was called, so that a copied line works: its path, unless PATH leads here as well."""
    found, called = shutil.which("headrace"), Path(sys.argv[0])
    return "headrace" if found is not None and Path(found).resolve() == called.resolve() else str(called)


def running_instance(data_dir: "DataDir", others: str = "--data-dir") -> "InstanceState":
    """Reads the instance of a data directory; a failure says how to start one, and which options name another."""
    from headrace.local.failure import LocalFailure
    from headrace.local.state import read_state

    state = read_state(data_dir.state_file)
    if state is None:
        raise LocalFailure(
            f"nothing runs in {data_dir.root}; start it with `{own_command()} up{data_dir_flag(data_dir)}`, "
            f"or name a running instance with {others}"
        )
    return state


@contextmanager
def failures_shown() -> Iterator[None]:
    """Ends the command with one clear message instead of a traceback."""
    from headrace.errors import HeadraceError
    from headrace.local.failure import LocalFailure

    try:
        yield
    except LocalFailure as failure:
        show_error(str(failure))
        raise typer.Exit(1) from None
    except HeadraceError as error:
        lines = [f"{error.reason}: {error.message}"]
        said = [f"{violation.field}: {violation.description}" for violation in error.violations]
        lines += [f"  {line}" for line in said if line not in error.message]
        show_error("\n".join(lines))
        raise typer.Exit(1) from None


def show_error(text: str) -> None:
    """Prints an error to stderr; in red on a terminal."""
    word = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() else "error:"
    typer.echo(f"{word} {text}", err=True)
