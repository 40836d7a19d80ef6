"""The control arm of the throughput benchmark works with today's scheduler and runner."""

from pathlib import Path

from benchmarks.colocated import Colocated
from benchmarks.load import Workload
from services.runner.build import build_engine
from services.runner.config import RunnerConfig
from services.runner.device import open_device
from services.runner.load_progress import LoadProgress
from services.runner.make_model import make_model
from services.runner.plan_executor import ModelThread


async def test_the_joined_arm_generates_every_token_of_its_workload_twice(tmp_path: Path) -> None:
    config = RunnerConfig(model=str(make_model("tiny-llama", tmp_path / "model")), kv_cache_mib=16)
    device, thread = open_device("cpu"), ModelThread(1)
    ready = await thread.run(lambda: build_engine(config, device, LoadProgress(config.model)))
    joined = Colocated(ready, config, device, thread)
    loop = joined.start()
    workload = Workload(4, prompt_tokens=20, output_tokens=9, vocabulary_size=ready.identity.vocabulary_size)

    reports = [await joined.run(workload) for _ in range(2)]

    assert [report["output_tokens"] for report in reports] == [36, 36]
    loop.cancel()
    thread.close()
