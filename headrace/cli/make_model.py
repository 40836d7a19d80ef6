"""headrace make-model"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.shared import show_error


def make_model(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    shape: Annotated[str, typer.Option(help="Which architecture and size, such as llama-135m.")] = "llama-135m",
) -> None:
    """Writes a model folder with random weights of a known shape, for measuring speed."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", "services.runner.make_model", "--shape", shape, "--out", str(out)], check=False
    )
    if result.returncode != 0:
        show_error(f"no model was made (exit code {result.returncode}); the lines above say why")
        raise typer.Exit(result.returncode)
