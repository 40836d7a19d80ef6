"""headrace version"""

import typer

from headrace import __version__


def version() -> None:
    """Prints the version."""
    typer.echo(f"headrace {__version__}")
