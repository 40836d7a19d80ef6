"""Starts a runner: python -m services.runner."""

import os

from services.common.config import ProcessConfig, config_from_env
from services.common.process import run_process
from services.runner.config import PREFIX, RunnerConfig


async def main(process: ProcessConfig) -> None:
    """Reads the settings before anything heavy is imported, so that a wrong one is reported at once."""
    config = config_from_env(RunnerConfig, PREFIX)
    # Read once, when torch is imported. Threads that spin at the end of every operation take the cores from the other
    # processes of this machine; on two shared cores a step was several times slower for it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from services.runner.wiring import serve_runner

    await serve_runner(config, process)


if __name__ == "__main__":
    run_process("runner", main)
