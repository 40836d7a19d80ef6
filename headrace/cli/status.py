"""headrace status"""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared import DataDirOption, data_dir_of, failures_shown, running_instance

if TYPE_CHECKING:
    from headrace.local.instance_status import ServiceStatus

_COLOURS = {"SERVING": "green", "NOT_SERVING": "yellow", "UNREACHABLE": "red", "DEAD": "red"}


def status(
    data_dir: DataDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Prints one JSON object for programs.")] = False,
) -> None:
    """Shows every process of a running instance and its health; exit code 1 where one does not serve."""
    from headrace.local.instance_status import instance_status

    with failures_shown():
        services = instance_status(running_instance(data_dir_of(data_dir)))
    if as_json:
        typer.echo(json.dumps({"services": [service.to_json() for service in services]}, indent=2))
    else:
        _show_table(services)
    if any(service.health.value != "SERVING" for service in services):
        raise typer.Exit(1)


def _show_table(services: "list[ServiceStatus]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("service", "health", "pid", "address", "model"):
        table.add_column(column, overflow="fold")
    for item in services:
        service, colour = item.service, _COLOURS[item.health.value]
        health = f"[{colour}]{item.health.value}[/]"
        if service.restarts:
            health += f" after {service.restarts} restart{'s' if service.restarts > 1 else ''}"
        address = f"{service.address}\n{service.http_address}" if service.http_address else service.address
        table.add_row(service.name, health, str(service.process.pid), address, service.model or "")
    # A pipe has no width; a table folded at 80 columns would break what the reader looks for.
    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(table)
