"""headrace restart"""

from typing import Annotated

import typer

from headrace.cli.shared import DataDirOption, data_dir_of, failures_shown, running_instance


def restart(
    service: Annotated[str, typer.Argument(help="gateway, scheduler, kvstore, redis, runner-0, runner-1, …")],
    data_dir: DataDirOption = None,
) -> None:
    """Restarts one service of a running instance; returns when it serves again."""
    from headrace.local.restarting import restart_service

    with failures_shown():
        chosen = data_dir_of(data_dir)
        state = running_instance(chosen)
        pid = restart_service(chosen, state, service, typer.echo)
        typer.echo(f"{service} serves again, pid {pid}")
