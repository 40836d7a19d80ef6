"""A real runner process under a scheduler whose plans are written by hand."""

import asyncio
from pathlib import Path

import pytest
import transformers
from conftest import generate
from runner_process import NOT_SERVING, SERVING, RunnerProcess
from scripted_scheduler import Stream, greedy_sequence, scripted_scheduler, work

from headrace.v1 import step_pb2

PROMPT = [11, 12, 13, 14, 15]


def scheduler_address(runner: RunnerProcess) -> str:
    """Returns where the runner dials."""
    return f"unix:{runner.log_path.parent}/scheduler.sock"


async def health(runner: RunnerProcess) -> int | None:
    """Asks without blocking the loop that serves the scheduler."""
    return await asyncio.to_thread(runner.health)


async def until_health(runner: RunnerProcess, expected: int) -> None:
    """Polls the health check."""
    async with asyncio.timeout(60):
        while await health(runner) != expected:  # noqa: ASYNC110 - another process, which signals nothing
            await asyncio.sleep(0.02)


async def generate_here(stream: Stream, tokens: int, first_step: int = 1) -> list[int]:
    """Lets the runner generate, two plans ahead."""
    await stream.plan(first_step, new_sequences=[greedy_sequence(0, PROMPT, [3, 1, 2])], work=[work(0, len(PROMPT))])
    output = []
    for step in range(first_step + 1, first_step + tokens):
        await stream.plan(step, work=[work(0, 1)])
        output.append((await stream.result()).token_ids[0])
    output.append((await stream.result()).token_ids[0])
    return output


async def test_it_serves_only_while_it_is_loaded_warm_and_attached(runner: RunnerProcess) -> None:
    """K8S-1: the first plan after SERVING is answered."""
    await asyncio.to_thread(runner.wait_until, lambda: runner.health() is not None)
    assert await health(runner) == NOT_SERVING
    await asyncio.to_thread(runner.wait_until, lambda: "waiting for the scheduler" in runner.log())
    assert await health(runner) == NOT_SERVING
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        await until_health(runner, SERVING)
        assert len(await generate_here(stream, 2)) == 2
    await until_health(runner, NOT_SERVING)


async def test_the_hello_says_which_model_and_which_cache(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        hello = (await scheduler.next_stream()).hello
    assert (hello.runner_id, hello.step_tokens, hello.sequence_slots, hello.has_l2) == ("runner-0", 512, 64, False)
    assert hello.model.architecture == "LlamaForCausalLM"
    assert hello.model.version == hello.model.weights_digest[:12]
    assert len(hello.model.weights_digest) == len(hello.model.tokenizer_digest) == 64
    assert (hello.model.context_length, hello.model.vocabulary_size) == (256, 320)
    assert list(hello.model.eos_token_ids) == [317, 319]
    # Three layers, keys and values, 16 tokens, 2 heads of 16 numbers of 4 bytes.
    assert hello.kv.block_bytes == 3 * 2 * 16 * 2 * 16 * 4
    assert hello.kv.block_count == 16 * 2**20 // hello.kv.block_bytes
    assert hello.kv.layout == "layer,kv,token,head,size:3*(2x16+2x16)"
    assert "rope_theta" in hello.kv.rope
    assert not hello.kv.HasField("sliding_window")


async def test_plans_sent_ahead_are_answered_in_order_and_equal_transformers(
    runner: RunnerProcess, reference: transformers.PreTrainedModel
) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        output = await generate_here(stream, 30)
        assert output == generate(reference, PROMPT, 30)
        await stream.plan(31, finished_slots=[0])
        last = await stream.result()
    assert (last.step, list(last.token_ids), last.epoch) == (31, [], stream.epoch)


async def test_results_tell_where_the_time_went(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        await stream.plan(1, new_sequences=[greedy_sequence(0, PROMPT, [0])], work=[work(0, 5)])
        result = await stream.result()
    assert (result.stats.batch_sequences, result.stats.batch_tokens) == (1, 5)
    assert result.stats.forward_nanoseconds > 0
    assert result.device.memory_used_bytes > 0


async def test_it_says_that_it_lives(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        beats = [await asyncio.wait_for(stream.heartbeats.get(), 30) for _ in range(4)]
    assert {beat.epoch for beat in beats} == {stream.epoch}


async def test_a_plan_of_another_epoch_is_dropped(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner), first_epoch=7) as scheduler:
        stream = await scheduler.next_stream()
        stale = {"new_sequences": [greedy_sequence(0, [1, 2], [0])], "work": [work(0, 2)]}
        await stream.plan(1, epoch=6, **stale)
        await stream.plan(1, epoch=8, **stale)
        await stream.plan(2, new_sequences=[greedy_sequence(0, PROMPT, [0])], work=[work(0, 5)])
        result = await stream.result()
    assert (result.step, result.epoch, list(result.slots)) == (2, 7, [0])


async def test_after_a_lost_stream_it_attaches_again_and_has_forgotten_everything(
    runner: RunnerProcess, reference: transformers.PreTrainedModel
) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        first = await scheduler.next_stream()
        await first.plan(1, new_sequences=[greedy_sequence(0, [9] * 40, [3, 1, 2])], work=[work(0, 40)])
        await first.plan(2, work=[work(0, 1)])
        first.hang_up()
        second = await scheduler.next_stream()
        assert second.epoch == first.epoch + 1
        assert second.hello.incarnation == first.hello.incarnation
        assert await generate_here(second, 10) == generate(reference, PROMPT, 10)


async def test_a_plan_that_contradicts_its_slots_ends_the_attachment_not_the_process(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        await stream.plan(1, work=[work(5, 1)])
        await asyncio.wait_for(stream.ended.wait(), 30)
        again = await scheduler.next_stream()
        assert len(await generate_here(again, 2)) == 2
    assert "slot 5 holds no sequence" in runner.log()


async def test_transfers_without_a_second_level_cache_end_at_once(runner: RunnerProcess) -> None:
    async with scripted_scheduler(scheduler_address(runner)) as scheduler:
        stream = await scheduler.next_stream()
        await stream.plan(
            1,
            loads=[step_pb2.BlockLoad(transfer_id=4, value_key="k")],
            publishes=[step_pb2.BlockPublish(transfer_id=5, value_key="k")],
        )
        ends = [await asyncio.wait_for(stream.transfers.get(), 30) for _ in range(2)]
    assert [(end.transfer_id, end.outcome) for end in ends] == [
        (4, step_pb2.TRANSFER_OUTCOME_UNAVAILABLE),
        (5, step_pb2.TRANSFER_OUTCOME_UNAVAILABLE),
    ]
    assert {end.epoch for end in ends} == {stream.epoch}


async def test_sigterm_lets_running_sequences_finish(tiny_model: Path, short_folder: Path) -> None:
    """K8S-4: and then the process ends with 0."""
    address = f"unix:{short_folder}/scheduler.sock"
    runner = RunnerProcess(short_folder, tiny_model, address)
    async with scripted_scheduler(address) as scheduler:
        stream = await scheduler.next_stream()
        await stream.plan(1, new_sequences=[greedy_sequence(0, PROMPT, [0])], work=[work(0, 5)])
        await stream.result()
        runner.terminate()
        await asyncio.to_thread(runner.wait_until, lambda: "draining" in runner.log())
        assert await health(runner) == NOT_SERVING
        assert (await asyncio.wait_for(stream.drained.get(), 30)).epoch == stream.epoch
        await stream.plan(2, work=[work(0, 1)])
        assert len((await stream.result()).token_ids) == 1
        await stream.plan(3, finished_slots=[0])
        assert await asyncio.to_thread(runner.process.wait, 60) == 0


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"MODEL": "/nonexistent"}, "is not a folder"),
        ({"REDIS_URL": "ftp://somewhere"}, "Redis URL"),
        ({"DEVICE": "tpu"}, "use cpu"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_78(
    settings: dict[str, str], cause: str, tiny_model: Path, short_folder: Path
) -> None:
    runner = RunnerProcess(short_folder, tiny_model, "unix:/nowhere", **settings)
    assert runner.process.wait(60) == 78
    lines = runner.log().strip().splitlines()
    assert len(lines) == 1
    assert cause in lines[0]
    assert "Traceback" not in lines[0]
