"""Settings of a runner are checked before anything is loaded."""

from pathlib import Path

import pytest

from services.common.config import ConfigError, config_from_env
from services.runner.config import PREFIX, RunnerConfig
from services.runner.device import CpuDevice, count_cores, open_device
from services.runner.pool_size import FEWEST_BLOCKS, PoolWish, count_blocks

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("MODEL", "", "MODEL is not set"),
        ("DTYPE", "int8", "int8"),
        ("BLOCK_TOKENS", "0", "BLOCK_TOKENS"),
        ("KV_CACHE_MIB", "-1", "KV_CACHE_MIB"),
        ("THREADS", "0", "THREADS"),
        ("STEP_TOKENS", "10", "SEQUENCE_SLOTS"),
        ("STEP_TOKEN", "10", "did you mean HEADRACE_RUNNER_STEP_TOKENS"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        config_from_env(RunnerConfig, PREFIX, {PREFIX + "MODEL": "m", PREFIX + name: value})


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="use cpu"):
        open_device("tpu")


def test_the_cpu_tells_its_load_and_memory() -> None:
    device = CpuDevice()
    reading = device.read()
    assert reading.utilization is not None
    assert 0 <= reading.utilization <= 1
    assert reading.memory_used_bytes > MIB
    assert device.free_bytes() > MIB


def test_a_container_s_quota_limits_the_cores(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    unlimited = count_cores(quota)
    for text, cores in (("max 100000", unlimited), ("100000 100000", 1), ("20000 100000", 1)):
        quota.write_text(text)
        assert count_cores(quota) == cores


def wish(kv_cache_mib: int | None = None, free_mib: int = 1000, slots: int = 4) -> PoolWish:
    """Returns a wish for blocks of 64 KiB and a context of 256 blocks."""
    return PoolWish(kv_cache_mib, free_mib * MIB, 64 * 1024, 16, slots, 4096)


def test_a_configured_size_is_kept() -> None:
    assert count_blocks(wish(kv_cache_mib=10)) == 160


def test_the_default_is_what_all_slots_can_use_but_no_more_than_a_quarter_of_the_free_memory() -> None:
    assert count_blocks(wish()) == 4 * 256
    assert count_blocks(wish(free_mib=100)) == 400
    assert count_blocks(wish(slots=100)) == 4000


def test_a_size_beyond_the_free_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="1000 MiB"):
        count_blocks(wish(kv_cache_mib=1001))


def test_too_little_memory_for_any_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"{FEWEST_BLOCKS} are the least"):
        count_blocks(wish(free_mib=1))
