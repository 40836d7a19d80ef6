"""The supervisor with real child processes: small stand-ins for the services."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.news import News, Phase, Serving
from headrace.local.plan import ServiceSpec, StackPlan
from headrace.local.restart_policy import QUICK_DEATHS
from headrace.local.restarting import TRY_AGAIN_SIGNAL, restart_service
from headrace.local.state import InstanceState, read_state
from headrace.local.supervisor import ServiceDied, Supervisor

FAKE = Path(__file__).with_name("fake_service.py")
NAMES = ("kvstore", "scheduler", "runner-0", "gateway")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Stack:
    """A supervisor over fakes, and what it told."""

    def __init__(self, root: Path, names: tuple[str, ...] = NAMES, **arguments: list[str]) -> None:
        self.data_dir = DataDir(root / "data")
        self.data_dir.create()
        self.stops = root / "stops"
        self.told: list[News] = []
        self.said: list[str] = []
        specs = tuple(self._spec(name, arguments.get(name.replace("-", "_"), [])) for name in names)
        plan = StackPlan(specs, model="a-model")
        self._news_came = asyncio.Event()
        self.supervisor = Supervisor(plan, self.data_dir, root, self._tell)

    def _tell(self, news: News) -> None:
        self.told.append(news)
        self._news_came.set()

    def _spec(self, name: str, arguments: list[str]) -> ServiceSpec:
        port = free_port()
        command = (sys.executable, str(FAKE), name, str(port), "--stops", str(self.stops), *arguments)
        return ServiceSpec(name, command, f"127.0.0.1:{port}", is_vital=name in ("scheduler", "gateway"))

    def state(self) -> InstanceState:
        state = read_state(self.data_dir.state_file)
        assert state is not None
        return state

    def pid(self, name: str) -> int:
        service = self.state().service(name)
        assert service is not None
        return service.process.pid

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._news_came.clear()
                await self._news_came.wait()

    async def restart(self, name: str) -> int:
        """Does what `headrace restart` does, in another thread as it is another process."""
        return await asyncio.to_thread(restart_service, self.data_dir, self.state(), name, self.said.append)

    def phases(self, name: str) -> list[str]:
        return [news.phase for news in self.told if isinstance(news, Phase) and news.service == name]


async def test_a_started_instance_has_answered_and_is_recorded(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    try:
        await stack.supervisor.start(ready_seconds=30)
        assert [service.name for service in stack.state().services] == list(NAMES)
        assert stack.state().is_ready
        assert all(service.process.find() is not None for service in stack.state().services)
        serving = next(news for news in stack.told if isinstance(news, Serving))
        assert serving.answer == "a fake answer"
    finally:
        await stack.supervisor.stop()


async def test_stopping_ends_the_clients_before_what_they_use_and_forgets_the_instance(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    await stack.supervisor.start(ready_seconds=30)
    processes = stack.state().services
    await stack.supervisor.stop()
    assert stack.stops.read_text().split() == ["gateway", "scheduler", "runner-0", "kvstore"]
    assert all(service.process.find() is None for service in processes)
    assert read_state(stack.data_dir.state_file) is None


async def test_a_child_that_dies_during_start_up_is_named_with_its_exit_code_and_last_lines(tmp_path: Path) -> None:
    stack = Stack(tmp_path, runner_0=["--fail", "78"])
    try:
        with pytest.raises(ServiceDied) as failure:
            await stack.supervisor.start(ready_seconds=30)
        assert "runner-0 died" in str(failure.value)
        assert "exit code 78" in str(failure.value)
        assert "error  cannot start  error=no such weights" in str(failure.value)
    finally:
        await stack.supervisor.stop()


async def test_a_start_up_that_takes_too_long_says_what_each_service_said_last(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    try:
        with pytest.raises(LocalFailure, match=r"not ready after 0\.01 s"):
            await stack.supervisor.start(ready_seconds=0.01)
    finally:
        await stack.supervisor.stop()


async def test_a_killed_child_is_started_again_and_told_about(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    watching = None
    try:
        await stack.supervisor.start(ready_seconds=30)
        watching = asyncio.create_task(stack.supervisor.watch())
        old = stack.pid("runner-0")
        os.kill(old, signal.SIGKILL)
        await stack.until(lambda: stack.phases("runner-0")[-1] == "ready" and stack.pid("runner-0") != old)
        restarting = next(news for news in stack.told if isinstance(news, Phase) and news.phase == "restarting")
        assert "signal SIGKILL" in restarting.detail
        service = stack.state().service("runner-0")
        assert service is not None
        assert service.restarts == 1
    finally:
        if watching is not None:
            watching.cancel()
        await stack.supervisor.stop()


async def test_a_vital_service_that_keeps_dying_ends_the_instance(tmp_path: Path) -> None:
    stack = Stack(tmp_path, gateway=["--fail-after-first"])
    try:
        await stack.supervisor.start(ready_seconds=30)
        os.kill(stack.pid("gateway"), signal.SIGKILL)
        with pytest.raises(ServiceDied, match="gave up on gateway after 5 quick deaths"):
            await asyncio.wait_for(stack.supervisor.watch(), 30)
    finally:
        await stack.supervisor.stop()


async def test_the_others_go_on_without_a_cache_that_keeps_dying(tmp_path: Path) -> None:
    stack = Stack(tmp_path, kvstore=["--fail-after-first"])
    watching = None
    try:
        await stack.supervisor.start(ready_seconds=30)
        watching = asyncio.create_task(stack.supervisor.watch())
        os.kill(stack.pid("kvstore"), signal.SIGKILL)
        await stack.until(lambda: stack.phases("kvstore")[-1] == "gave up")
        assert not watching.done()
        gateway = stack.state().service("gateway")
        assert gateway is not None
        assert gateway.process.find() is not None
    finally:
        if watching is not None:
            watching.cancel()
        await stack.supervisor.stop()


async def test_restarts_on_request_never_make_the_supervisor_give_up(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    watching = None
    try:
        await stack.supervisor.start(ready_seconds=30)
        watching = asyncio.create_task(stack.supervisor.watch())
        pids = {await stack.restart("gateway") for _ in range(QUICK_DEATHS)}
        assert len(pids) == QUICK_DEATHS
        assert not watching.done()
    finally:
        if watching is not None:
            watching.cancel()
        await stack.supervisor.stop()


async def test_the_loss_of_the_last_of_several_runners_ends_the_instance(tmp_path: Path) -> None:
    names = ("scheduler", "runner-0", "runner-1", "gateway")
    stack = Stack(tmp_path, names, runner_0=["--fail-after-first"], runner_1=["--fail-after-first"])
    try:
        await stack.supervisor.start(ready_seconds=30)
        for name in ("runner-0", "runner-1"):
            os.kill(stack.pid(name), signal.SIGKILL)
        with pytest.raises(ServiceDied, match=r"gave up on runner-[01], the last runner, after 5 quick deaths"):
            await asyncio.wait_for(stack.supervisor.watch(), 30)
        assert sum("gave up" in stack.phases(name) for name in ("runner-0", "runner-1")) == 1
    finally:
        await stack.supervisor.stop()


async def test_what_was_given_up_starts_again_on_request_and_a_request_in_vain_says_so(tmp_path: Path) -> None:
    stack = Stack(tmp_path, kvstore=["--fail-after-first"])
    asyncio.get_running_loop().add_signal_handler(TRY_AGAIN_SIGNAL, stack.supervisor.try_again)
    watching = None
    try:
        await stack.supervisor.start(ready_seconds=30)
        watching = asyncio.create_task(stack.supervisor.watch())
        os.kill(stack.pid("kvstore"), signal.SIGKILL)
        with pytest.raises(LocalFailure, match="kvstore died again and again, so the supervisor has given it up"):
            await stack.restart("kvstore")
        (tmp_path / "kvstore.started").unlink()  # the cause is gone
        assert await stack.restart("kvstore") == stack.pid("kvstore")
        assert stack.said == ["kvstore had been given up after quick deaths; starting it again"]
    finally:
        if watching is not None:
            watching.cancel()
        asyncio.get_running_loop().remove_signal_handler(TRY_AGAIN_SIGNAL)
        await stack.supervisor.stop()


async def test_a_stopped_child_still_drains_when_the_instance_ends(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    await stack.supervisor.start(ready_seconds=30)
    os.kill(stack.pid("runner-0"), signal.SIGSTOP)
    await stack.supervisor.stop()
    assert "runner-0" in stack.stops.read_text().split()
