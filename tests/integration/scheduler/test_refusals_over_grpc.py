"""What a gateway hears when a request is refused."""

from pathlib import Path

import grpc
import pytest
from scheduler_client import gateway
from scheduler_process import local_scheduler
from scripted_runner import ScriptedRunner

from services.common.errors import from_rpc_error

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13]


async def test_refusals_reach_the_gateway_with_reason_and_numbers(folder: Path) -> None:
    async with local_scheduler(folder) as scheduler, ScriptedRunner(scheduler.address) as runner:
        await runner.attached.wait()
        async with gateway(scheduler.address) as gate:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await gate.ask([5] * 250, 100)
        error = from_rpc_error(failure.value)
        assert error.reason == "CONTEXT_LENGTH_EXCEEDED"
        assert "350" in error.message
        reason = {"reason": "CONTEXT_LENGTH_EXCEEDED"}
        assert scheduler.registry.get_sample_value("headrace_scheduler_refusals_total", reason) == 1
