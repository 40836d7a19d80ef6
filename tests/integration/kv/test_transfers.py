"""The runner's transfers against a real Valkey that is well, full, stopped, flushed, or gone."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from byte_pool import IDENTITY, BytePool, load_order, publish_order
from valkey_server import ValkeyServer

from services.runner.l2.orders import (
    BlockPool,
    L2Config,
    LoadOrder,
    Outcome,
    PublishOrder,
    StoredBlock,
    TransferReport,
)
from services.runner.l2.transfers import L2Transfers

KEY = "headrace:1:n:v"


class Runner:
    """A pool with transfers, and the reports that came back."""

    def __init__(self, url: str, pool: BlockPool | None = None, **settings: Any) -> None:
        self.pool = BytePool()
        defaults = {"breaker_open_seconds": 0.1, "breaker_open_max_seconds": 0.2, "connect_timeout_seconds": 2.0}
        config = L2Config(
            url, **{**defaults, "publish_timeout_seconds": 10.0, "publish_wait_seconds": 20.0, **settings}
        )
        self.transfers = L2Transfers(config, pool or self.pool, IDENTITY)
        self.reports: queue.Queue[TransferReport] = queue.Queue()

    def load(self, order: LoadOrder) -> TransferReport:
        self.transfers.submit_load(order, self.reports.put)
        return self.reports.get(timeout=30)

    def publish(self, order: PublishOrder) -> TransferReport:
        self.transfers.submit_publish(order, self.reports.put)
        return self.reports.get(timeout=30)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.01)

    def close(self) -> None:
        self.transfers.close()


@pytest.fixture
def runner(valkey: ValkeyServer) -> Iterator[Runner]:
    with closing(Runner(valkey.url)) as runner:
        yield runner


def test_published_blocks_come_back_into_other_places(runner: Runner, valkey: ValkeyServer) -> None:
    written = runner.publish(publish_order(range(4)))
    assert (written.outcome, written.payload_bytes) == (Outcome.DONE, 4 * IDENTITY.block_bytes)
    assert 0 < valkey.command("PTTL", KEY) <= 60_000
    read = runner.load(load_order(range(1, 3), into=10, first_index=1))
    assert (read.transfer_id, read.outcome, read.payload_bytes) == (2, Outcome.DONE, 2 * IDENTITY.block_bytes)
    assert read.duration_nanoseconds > 0
    assert runner.pool.blocks[10:12] == runner.pool.blocks[1:3]
    assert runner.pool.written == [10, 11]


def test_what_is_not_there_is_a_miss(runner: Runner) -> None:
    assert runner.load(load_order(range(2), into=10)).outcome is Outcome.MISS
    assert runner.pool.written == []


def damage(valkey: ValkeyServer, how: str) -> None:
    whole = valkey.command("GET", KEY)
    match how:
        case "truncated":
            valkey.command("SET", KEY, whole[: len(whole) // 2])
        case "grown":
            valkey.command("SETRANGE", KEY, len(whole) + 100, "x")
        case "flipped":
            valkey.command("SETRANGE", KEY, len(whole) // 2, bytes([whole[len(whole) // 2] ^ 1]))
        case "empty":
            valkey.command("SET", KEY, "")
        case "of another type":
            valkey.command("DEL", KEY)
            valkey.command("HSET", KEY, "field", "x")
        case "huge":
            valkey.command("SETRANGE", KEY, 3_000_000, "x")


@pytest.mark.parametrize("how", ["truncated", "grown", "flipped", "empty", "of another type", "huge"])
def test_a_damaged_value_is_deleted_and_counted_and_touches_no_block(valkey: ValkeyServer, how: str) -> None:
    """L2-2: and the next reader sees a plain miss."""
    with closing(Runner(valkey.url, max_value_bytes=2_000_000)) as runner:
        runner.publish(publish_order(range(4)))
        damage(valkey, how)
        report = runner.load(load_order(range(4), into=10))
        assert report.outcome is Outcome.CORRUPT
        assert report.message
        assert runner.pool.written == []
        assert valkey.command("EXISTS", KEY) == 0
        assert runner.transfers.counters().corrupt_values == 1
        assert runner.load(load_order(range(4), into=10)).outcome is Outcome.MISS
        assert not runner.transfers.counters().is_breaker_open


def test_another_tenants_key_opens_nothing(runner: Runner) -> None:
    runner.publish(publish_order(range(4)))
    report = runner.load(load_order(range(4), into=10, integrity_key=b"of another tenant"))
    assert report.outcome is Outcome.CORRUPT
    assert runner.pool.written == []


def test_values_swapped_between_keys_are_corrupt(runner: Runner, valkey: ValkeyServer) -> None:
    """L2-6: a value says under which key it was written, so a reply to another question is never taken."""
    runner.publish(publish_order(range(4)))
    runner.publish(publish_order(range(4), value_key="headrace:1:n:w"))
    valkey.command("SET", KEY, valkey.command("GET", "headrace:1:n:w"))
    assert runner.load(load_order(range(4), into=10)).outcome is Outcome.CORRUPT


def test_a_block_that_the_value_does_not_hold_is_corrupt(runner: Runner) -> None:
    runner.publish(publish_order(range(2)))
    order = load_order(range(2), into=10)
    beyond = replace(order, blocks=(order.blocks[0], StoredBlock(7, 11, order.blocks[1].block_key)))
    assert runner.load(beyond).outcome is Outcome.CORRUPT
    assert runner.pool.written == []


def test_a_full_redis_refuses_without_an_error_and_still_serves_what_it_has() -> None:
    """L2-4: writes are counted and paused, so there is no storm of retries; reads go on; it recovers by itself."""
    with ValkeyServer(policy="noeviction") as valkey, closing(Runner(valkey.url)) as runner:
        runner.publish(publish_order(range(4)))
        valkey.command("CONFIG", "SET", "maxmemory", "1")
        reports = [runner.publish(publish_order(range(4), value_key=f"full:{n}")) for n in range(10)]
        assert {report.outcome for report in reports} == {Outcome.UNAVAILABLE}
        assert "OOM" in reports[0].message
        assert "pause" in reports[-1].message
        counters = runner.transfers.counters()
        assert (counters.is_store_paused, counters.is_breaker_open) == (True, False)
        assert runner.load(load_order(range(4), into=10)).outcome is Outcome.DONE
        valkey.command("CONFIG", "SET", "maxmemory", "0")
        runner.wait(lambda: runner.publish(publish_order(range(4))).outcome is Outcome.DONE)
        assert not runner.transfers.counters().is_store_paused


def test_an_evicting_redis_takes_new_values_and_old_ones_become_misses() -> None:
    """L2-4: allkeys-lru."""
    with ValkeyServer(maxmemory="3mb", policy="allkeys-lru") as valkey, closing(Runner(valkey.url)) as runner:
        for number in range(200):
            assert runner.publish(publish_order(range(16), value_key=f"v:{number}")).outcome is Outcome.DONE
        assert runner.load(load_order(range(16), into=16, value_key="v:0")).outcome is Outcome.MISS
        assert runner.load(load_order(range(16), into=16, value_key="v:199")).outcome is Outcome.DONE


def test_a_hung_redis_costs_a_few_timeouts_then_nothing_and_comes_back_by_itself(valkey: ValkeyServer) -> None:
    """L2-5: SIGSTOP accepts connections and answers nothing."""
    with closing(Runner(valkey.url, connect_timeout_seconds=0.1)) as runner:
        runner.publish(publish_order(range(4)))
        valkey.pause()
        order = load_order(range(4), into=10, timeout_seconds=0.1)
        first = [runner.load(order) for _ in range(3)]
        assert [report.outcome for report in first] == [Outcome.TIMEOUT] * 3
        assert all(report.duration_nanoseconds < 1e9 for report in first)
        began = time.monotonic()
        later = [runner.load(order) for _ in range(20)]
        assert {report.outcome for report in later} == {Outcome.UNAVAILABLE}
        assert time.monotonic() - began < 2.0
        counters = runner.transfers.counters()
        assert (counters.is_breaker_open, counters.breaker_openings) == (True, 1)
        valkey.resume()
        runner.wait(lambda: not runner.transfers.counters().is_breaker_open)
        assert runner.load(load_order(range(4), into=10)).outcome is Outcome.DONE
        assert runner.pool.blocks[10:14] == runner.pool.blocks[:4]


def test_a_load_that_waited_too_long_is_not_begun(valkey: ValkeyServer) -> None:
    with closing(Runner(valkey.url, threads=1, publish_timeout_seconds=0.3)) as runner:
        valkey.pause()
        runner.transfers.submit_publish(publish_order(range(4)), runner.reports.put)
        runner.wait(lambda: runner.transfers.counters().waiting == 0)
        runner.transfers.submit_load(load_order(range(4), into=10, timeout_seconds=0.05), runner.reports.put)
        assert runner.reports.get(timeout=5).outcome is Outcome.TIMEOUT
        late = runner.reports.get(timeout=5)
        assert (late.transfer_id, late.outcome) == (2, Outcome.TIMEOUT)
        assert "waited" in late.message


def test_flushed_values_are_misses_and_a_restart_costs_nobody_anything(runner: Runner, valkey: ValkeyServer) -> None:
    runner.publish(publish_order(range(4)))
    valkey.command("FLUSHALL")
    assert runner.load(load_order(range(4), into=10)).outcome is Outcome.MISS
    valkey.stop()
    valkey.start()
    assert runner.publish(publish_order(range(4))).outcome is Outcome.DONE, "an idle connection that broke is replaced"
    assert runner.load(load_order(range(4), into=10)).outcome is Outcome.DONE


def test_a_redis_absent_at_start_is_used_when_it_comes(valkey: ValkeyServer) -> None:
    """L2-5: and until then every order ends at once."""
    valkey.stop()
    with closing(Runner(valkey.url)) as runner:
        began = time.monotonic()
        for _ in range(10):
            assert runner.load(load_order(range(4), into=10)).outcome is Outcome.UNAVAILABLE
            assert runner.publish(publish_order(range(4))).outcome is Outcome.UNAVAILABLE
        assert time.monotonic() - began < 2
        valkey.start()
        runner.wait(lambda: runner.publish(publish_order(range(4))).outcome is Outcome.DONE)


def test_a_server_that_wants_a_password_and_a_database(valkey: ValkeyServer) -> None:
    valkey.command("ACL", "SETUSER", "cache", "on", ">s3:cret", "~headrace:*", "+@all")
    url = f"unix://{valkey.socket_path}?db=3&username=cache&password=s3%3Acret"
    with closing(Runner(url)) as runner:
        assert runner.publish(publish_order(range(4))).outcome is Outcome.DONE
        assert runner.load(load_order(range(4), into=10)).outcome is Outcome.DONE
        assert valkey.command("EXISTS", KEY) == 0, "it lies in database 3"
    with closing(Runner(f"unix://{valkey.socket_path}?username=cache&password=wrong")) as runner:
        report = runner.load(load_order(range(4), into=10))
        assert report.outcome is Outcome.UNAVAILABLE
        assert "WRONGPASS" in report.message


def test_a_redis_over_tcp_works_alike() -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--bind", "127.0.0.1")
    with ValkeyServer(options=options), closing(Runner(f"redis://127.0.0.1:{port}/0")) as runner:
        assert runner.publish(publish_order(range(16))).outcome is Outcome.DONE
        assert runner.load(load_order(range(16), into=16)).outcome is Outcome.DONE


def test_many_orders_from_many_threads_each_end_once_and_right(runner: Runner) -> None:
    for number in range(8):
        runner.publish(publish_order(range(number, number + 4), value_key=f"v:{number}", transfer_id=number))

    def submit(start: int) -> None:
        for transfer_id in range(start, start + 50):
            number = transfer_id % 8
            changes = {"value_key": f"v:{number}", "transfer_id": transfer_id, "timeout_seconds": 30.0}
            order = load_order(range(number, number + 4), into=20, **changes)
            runner.transfers.submit_load(order, runner.reports.put)

    threads = [threading.Thread(target=submit, args=(start,)) for start in range(100, 500, 50)]
    for thread in threads:
        thread.start()
    reports = [runner.reports.get(timeout=20) for _ in range(400)]
    assert sorted(report.transfer_id for report in reports) == list(range(100, 500))
    assert {report.outcome for report in reports} == {Outcome.DONE}
    assert runner.reports.empty()


def test_closing_reports_every_order_once_and_ends_the_threads(valkey: ValkeyServer) -> None:
    earlier = set(threading.enumerate())
    runner = Runner(valkey.url, threads=2)
    for transfer_id in range(100):
        runner.transfers.submit_publish(publish_order(range(16), transfer_id=transfer_id), runner.reports.put)
    runner.close()
    runner.transfers.submit_load(load_order(range(4), into=10, transfer_id=100), runner.reports.put)
    reports = [runner.reports.get_nowait() for _ in range(101)]
    assert sorted(report.transfer_id for report in reports) == list(range(101))
    assert reports[-1].outcome is Outcome.UNAVAILABLE
    assert not [thread for thread in set(threading.enumerate()) - earlier if thread.name.startswith("l2-")]


class BrokenPool(BytePool):
    """A pool whose reads fail once: a bug of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True

    def read_block(self, block_id: int, out: memoryview) -> None:
        if self.is_broken:
            self.is_broken = False
            raise IndexError(block_id)
        super().read_block(block_id, out)


def test_a_bug_in_one_transfer_ends_only_that_one(valkey: ValkeyServer) -> None:
    with closing(Runner(valkey.url, pool=BrokenPool(), threads=1)) as runner:
        assert runner.publish(publish_order(range(4))).outcome is Outcome.UNAVAILABLE
        assert runner.publish(publish_order(range(4))).outcome is Outcome.DONE
