"""Runners that say that they are about to leave, over real gRPC."""

from pathlib import Path

from polling import until
from scheduler_client import gateway
from scheduler_process import local_scheduler
from scripted_engine import counting_script
from scripted_runner import ScriptedRunner, scripted_hello

from headrace.v1 import scheduler_pb2 as pb
from headrace.v1 import step_pb2

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13]


async def test_a_runner_that_announced_its_departure_is_not_a_lost_one(folder: Path) -> None:
    async with (
        local_scheduler(folder) as scheduler,
        ScriptedRunner(scheduler.address) as leaving,
        gateway(scheduler.address) as gate,
    ):
        await leaving.attached.wait()
        call = await gate.open(PROMPT, 40)
        before = await gate.read(call, tokens=3)
        leaving.is_open.clear()
        await leaving.say(step_pb2.AttachRequest(draining=step_pb2.Draining(epoch=leaving.epochs[0])))
        await until(lambda: scheduler.parts.fleet.sessions[0].is_draining)
        (load,) = (await gate.stub.GetLoads(pb.GetLoadsRequest())).runners
        assert load.is_draining
        async with ScriptedRunner(scheduler.address, scripted_hello("runner-1")):
            assert (await gate.ask(PROMPT, 2)).messages[0].runner_id == "runner-1"
            await leaving.close()
            after = await gate.read(call)
            assert len(scheduler.parts.fleet.sessions) == 1
            assert not scheduler.registry.get_sample_value("headrace_scheduler_runner_losses_total")

    known = list(PROMPT)
    for _ in range(40):
        known.append(counting_script("", known))
    assert PROMPT + before.token_ids + after.token_ids == known
