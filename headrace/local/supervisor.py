"""Starts an instance, keeps its processes running, and ends them in order."""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import AuthenticationFailed, HeadraceError
from headrace.local.child import Child, Death
from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.first_answer import ask
from headrace.local.health import Health, check_health
from headrace.local.log_file import LogFile
from headrace.local.news import News, Notice, Phase, Serving
from headrace.local.plan import ServiceSpec, StackPlan, stop_order
from headrace.local.restart_policy import QUICK_DEATHS, RestartPolicy
from headrace.local.state import InstanceState, ProcessId, ServiceState, write_state

_POLL_SECONDS = 0.2
_LOG_SECONDS = 30.0
# Longer than the drain that a service is given, so that it ends by itself.
_STOP_SECONDS = 15.0

Tell = Callable[[News], None]


class ServiceDied(LocalFailure):
    """A child ended when it should not have."""

    def __init__(self, death: Death, addition: str = "") -> None:
        super().__init__(f"{addition}{death.describe()}")


@dataclasses.dataclass(slots=True)
class _Service:
    """One service over all its restarts."""

    spec: ServiceSpec
    log: LogFile
    child: Child | None = None
    restarts: int = 0
    policy: RestartPolicy = dataclasses.field(default_factory=RestartPolicy)
    serving_since: float | None = None
    is_given_up: bool = False
    wanted_again: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def served_seconds(self) -> float:
        """Returns how long the child has been healthy; loading does not count."""
        return 0.0 if self.serving_since is None else time.monotonic() - self.serving_since


class Supervisor:
    """One local instance. `start`, then `watch` until told to stop, and `stop` whatever happened."""

    def __init__(self, plan: StackPlan, data_dir: DataDir, socket_folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._data_dir = data_dir
        self._socket_folder = socket_folder
        self._tell = tell
        self._is_ready = False
        self._services = {spec.name: _Service(spec, LogFile(data_dir.log_file(spec.name))) for spec in plan.services}

    async def start(self, ready_seconds: float) -> None:
        """Starts every process and returns when the instance has answered a question."""
        for notice in self._plan.notices:
            self._tell(Notice(notice))
        try:
            async with asyncio.timeout(ready_seconds):
                await self._start_all()
                await self._answer_once(ready_seconds)
        except TimeoutError:
            raise LocalFailure(self._describe_lateness(ready_seconds)) from None
        self._is_ready = True
        self._record()

    def try_again(self) -> None:
        """Starts what was given up once more, and forgets how often it died."""
        for service in self._services.values():
            service.wanted_again.set()

    async def watch(self) -> None:
        """Restarts what dies; raises ServiceDied when nothing can be served without what was given up."""
        try:
            async with asyncio.TaskGroup() as group:
                for service in self._services.values():
                    group.create_task(self._keep_running(service))
                group.create_task(self._keep_logs_short())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def stop(self) -> None:
        """Ends every process, in order, and forgets the instance."""
        for name in stop_order(self._services):
            child = self._services[name].child
            if child is not None:
                self._tell(Phase(name, "stopping"))
                await child.stop(_STOP_SECONDS)
                self._tell(Phase(name, "stopped"))
        self._data_dir.state_file.unlink(missing_ok=True)
        self._data_dir.cluster_token_file.unlink(missing_ok=True)

    async def _start_all(self) -> None:
        services = list(self._services.values())
        if services[0].spec.name == "redis":
            await self._start_child(services[0])
            await self._all_healthy(services[:1], watched=services[:1])
        rest = [service for service in services if service.child is None]
        for service in rest:
            await self._start_child(service)
        await self._all_healthy(rest, watched=services)

    async def _all_healthy(self, services: list[_Service], watched: list[_Service]) -> None:
        """Returns when all of them serve; raises ServiceDied as soon as one of the watched ones ends."""
        deaths = [asyncio.create_task(self._child(service).wait()) for service in watched]
        healthy = [asyncio.create_task(self._until_healthy(service)) for service in services]
        waiting = asyncio.create_task(asyncio.wait(healthy))
        tasks: list[asyncio.Task[Any]] = [*deaths, *healthy, waiting]
        try:
            await asyncio.wait([*deaths, waiting], return_when=asyncio.FIRST_COMPLETED)
            for death in deaths:
                if death.done():
                    raise ServiceDied(death.result())
            for task in healthy:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_child(self, service: _Service) -> None:
        self._tell(Phase(service.spec.name, "starting"))
        service.serving_since = None
        service.child = await Child.start(service.spec, service.log)
        self._record()

    async def _until_healthy(self, service: _Service) -> None:
        shown = ""
        while await asyncio.to_thread(check_health, service.spec.name, service.spec.address) is not Health.SERVING:
            event = service.log.last_event()
            if event != shown:
                self._tell(Phase(service.spec.name, "loading", event))
                shown = event
            await asyncio.sleep(_POLL_SECONDS)
        service.serving_since = time.monotonic()
        self._tell(Phase(service.spec.name, "ready"))

    async def _answer_once(self, timeout_seconds: float) -> None:
        gateway = self._plan.service("gateway")
        api_key = os.environ.get("HEADRACE_API_KEY")
        try:
            answer, seconds = await asyncio.to_thread(ask, gateway.address, api_key, timeout_seconds)
        except AuthenticationFailed:
            self._tell(Notice("no first answer: the gateway wants an API key; set HEADRACE_API_KEY to one of yours"))
            answer, seconds = "", 0.0
        except HeadraceError as error:
            raise LocalFailure(
                f"the instance is up but its first answer failed: {error.code} {error.message}; "
                f"logs: {self._data_dir.logs}"
            ) from error
        self._tell(
            Serving(
                model=self._plan.model,
                grpc_address=gateway.address,
                http_address=gateway.http_address or "",
                logs=str(self._data_dir.logs),
                answer=answer,
                answer_seconds=seconds,
            )
        )

    async def _keep_running(self, service: _Service) -> None:
        name = service.spec.name
        while True:
            death = await self._child(service).wait()
            pause = service.policy.pause_after(service.served_seconds(), was_asked=death.was_asked)
            if pause is None:
                await self._give_up_until_wanted(service, death)
            else:
                why = "it ended as it was asked to" if death.was_asked else death.describe()
                self._tell(Phase(name, "restarting", f"in {pause:g} s: {why}"))
                await asyncio.sleep(pause)
            service.restarts += 1
            await self._start_child(service)
            with contextlib.suppress(ServiceDied):  # the next turn of the loop deals with it
                await self._all_healthy([service], watched=[service])

    async def _keep_logs_short(self) -> None:
        while True:
            for service in self._services.values():
                try:
                    await asyncio.to_thread(service.log.make_room)
                except OSError as error:
                    self._tell(Notice(f"the log of {service.spec.name} is too long and cannot be moved: {error}"))
            await asyncio.sleep(_LOG_SECONDS)

    async def _give_up_until_wanted(self, service: _Service, death: Death) -> None:
        name, why = service.spec.name, f"after {QUICK_DEATHS} quick deaths"
        service.is_given_up = True
        given_up = [other.spec.name for other in self._services.values() if other.is_given_up]
        if not self._plan.can_serve_without(given_up):
            whom = name if service.spec.is_vital else f"{name}, the last runner,"
            raise ServiceDied(death, f"gave up on {whom} {why}: ")
        self._tell(Phase(name, "gave up", f"{why}; `headrace restart {name}` starts it again: {death.describe()}"))
        service.wanted_again.clear()
        self._record()
        await service.wanted_again.wait()
        service.is_given_up = False
        service.policy = RestartPolicy()

    def _child(self, service: _Service) -> Child:
        assert service.child is not None, service.spec.name
        return service.child

    def _describe_lateness(self, ready_seconds: float) -> str:
        lines = [f"not ready after {ready_seconds:g} s (--ready-seconds); what each service said last:"]
        lines += [f"  {name}: {service.log.last_event() or '(nothing)'}" for name, service in self._services.items()]
        return "\n".join(lines)

    def _record(self) -> None:
        services = []
        for service in self._services.values():
            if service.child is not None:
                spec = service.spec
                services.append(
                    ServiceState(
                        name=spec.name,
                        process=service.child.identity,
                        address=spec.address,
                        log=str(service.log.path),
                        model=spec.model,
                        http_address=spec.http_address,
                        metrics_address=spec.metrics_address,
                        restarts=service.restarts,
                        is_given_up=service.is_given_up,
                    )
                )
        state = InstanceState(
            supervisor=ProcessId.of(os.getpid()),
            model=self._plan.model,
            is_ready=self._is_ready,
            services=tuple(services),
            socket_folder=str(self._socket_folder),
        )
        write_state(self._data_dir.state_file, state)
