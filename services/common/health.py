"""The standard health service, with watchers that neither hold up a change of state nor a shutdown."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer


class Health(HealthServicer):
    """Answers for the process ("") and each of its services; not serving until it is told so."""

    def __init__(self, service_names: Iterable[str]) -> None:
        self._names = {"", *service_names}
        self._is_serving = False
        self._is_closed = False
        self._changed = asyncio.Event()

    def set_serving(self, is_serving: bool) -> None:
        """Sets what checks see from now on; watchers are told if it changed."""
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            self._wake()

    def close(self) -> None:
        """Ends every watch: one would keep a draining server waiting for as long as it may."""
        self._is_closed = True
        self._wake()

    # The base class is written for threads; here both are coroutines.
    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # type: ignore[override]
        """Tells the present state."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: HealthCheckRequest, context: Any) -> None:  # type: ignore[override]
        """Tells the present state and every later one."""
        told: int | None = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            elif self._is_closed:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this process is shutting down")
            else:
                await changed.wait()

    def _status(self, service: str) -> int:
        if service not in self._names:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.SERVING if self._is_serving else HealthCheckResponse.NOT_SERVING

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
