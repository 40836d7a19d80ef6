"""headrace up"""

import math
from typing import Annotated

import typer

from headrace.cli.shared import DataDirOption, data_dir_of, failures_shown
from headrace.local.ports import OFFSETS_HELP


def up(
    model: Annotated[
        str | None,
        typer.Option(envvar="HEADRACE_MODEL", help="A folder or a hub id. Default: the built-in headrace-tiny."),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Of weights and activations, such as float32 or bfloat16.")] = None,
    runners: Annotated[int, typer.Option(help="How many runners serve the model.")] = 1,
    port_base: Annotated[int | None, typer.Option(help=f"Moves all ports: {OFFSETS_HELP}.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Returns when the instance serves.")] = False,
    data_dir: DataDirOption = None,
    ready_seconds: Annotated[float, typer.Option(help="How long loading may take.")] = 600.0,
) -> None:
    """Starts everything on this machine: Valkey, kvstore, scheduler, runners and gateway.

    Default ports: gateway 50051 (gRPC), 8080 (HTTP), 50061 (admin); scheduler 50052; runner 50053; kvstore 50054;
    /metrics 9091 to 9094. Settings of a service come from the environment, such as HEADRACE_SCHEDULER_RUN_AHEAD=1.
    """
    import asyncio

    from headrace.cli.progress import Progress
    from headrace.local.detached import start_detached
    from headrace.local.failure import LocalFailure
    from headrace.local.instance import run_instance
    from headrace.local.plan import UpOptions, default_model, resolve_model

    with failures_shown():
        if not (ready_seconds > 0 and math.isfinite(ready_seconds)):
            raise LocalFailure(f"--ready-seconds {ready_seconds:g}: choose more than 0")
        chosen = data_dir_of(data_dir)
        options = UpOptions(
            model=resolve_model(model or default_model()),
            data_dir=str(chosen.root),
            dtype=dtype,
            runners=runners,
            port_base=port_base,
            ready_seconds=ready_seconds,
        )
        with Progress(chosen, is_detached=detach) as progress:
            if detach:
                code = start_detached(options, progress.tell)
            else:
                code = asyncio.run(run_instance(options, progress.tell))
    raise typer.Exit(code)
