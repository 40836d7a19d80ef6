"""headrace down"""

import typer

from headrace.cli.shared import DataDirOption, data_dir_of, failures_shown


def down(data_dir: DataDirOption = None) -> None:
    """Stops the instance of this data directory, and nothing else."""
    from headrace.local.stopping import stop_instance

    with failures_shown():
        chosen = data_dir_of(data_dir)
        had_any = stop_instance(chosen, typer.echo)
        typer.echo(f"stopped the instance in {chosen.root}" if had_any else f"nothing runs in {chosen.root}")
