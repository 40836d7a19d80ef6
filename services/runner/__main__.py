"""Starts a runner: python -m services.runner."""

import os

from services.common.process import run_process


def start() -> None:
    """Prepares the environment that torch reads when it is imported, then runs the process."""
    # Threads that spin at the end of every operation take the cores from the other processes of this machine; on two
    # shared cores a step was several times slower for it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from services.runner.wiring import main

    run_process("runner", main)


if __name__ == "__main__":
    start()
