"""Puts the commands together. What a command needs is imported when it runs, so that --help is quick."""

import io
import sys

import typer

from headrace.cli.chat import chat
from headrace.cli.down import down
from headrace.cli.make_model import make_model
from headrace.cli.restart import restart
from headrace.cli.status import status
from headrace.cli.up import up
from headrace.cli.version import version

app = typer.Typer(
    name="headrace",
    help="Serves large language models as four processes: gateway, scheduler, runner and kvstore.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def print_anything() -> None:
    """Shows what the terminal's encoding cannot carry as an escape, instead of ending with a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


for command in (up, down, chat, status, restart, version):
    app.command()(command)
app.command("make-model")(make_model)


if __name__ == "__main__":
    app()
