"""Starts a gateway: python -m services.gateway."""

import os
import sys

from services.common.config import ProcessConfig, config_from_env
from services.common.process import run_process, wait_for_shutdown
from services.gateway.config import GatewayConfig


async def main(process: ProcessConfig) -> None:
    """Serves until SIGTERM."""
    from services.gateway.gateway import Gateway

    gateway = Gateway(config_from_env(GatewayConfig, "HEADRACE_GATEWAY_"), process)
    await gateway.start()
    try:
        await wait_for_shutdown()
    finally:
        await gateway.stop()


if __name__ == "__main__":
    # transformers imports torch where it finds it; a tokenizer has no use for it, and it doubles the start-up time.
    sys.modules["torch"] = None  # type: ignore[assignment] # how Python says "cannot be imported"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    run_process("gateway", main)
