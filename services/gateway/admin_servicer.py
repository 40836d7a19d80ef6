"""Serves the operator's API."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import grpc

from headrace.v1 import admin_pb2, admin_pb2_grpc
from headrace.v1.scheduler_pb2 import GetLoadsResponse
from services.common.errors import NotBuiltYet, errors_as_status
from services.gateway.open_requests import OpenRequests
from services.gateway.readiness import Readiness

Context = grpc.aio.ServicerContext[Any, Any]


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Implements AdminService."""

    def __init__(
        self, readiness: Readiness, open_requests: OpenRequests, loads: Callable[[], GetLoadsResponse]
    ) -> None:
        self._readiness = readiness
        self._open_requests = open_requests
        self._loads = loads

    async def GetStatus(self, request: admin_pb2.GetStatusRequest, context: Context) -> admin_pb2.GetStatusResponse:
        """Reports what the gateway sees."""
        loads = self._loads()
        reason = self._readiness.reason
        return admin_pb2.GetStatusResponse(
            version=version("headrace"),
            ready=reason is None,
            not_ready_reason=reason or "",
            open_requests=len(self._open_requests),
            runners=loads.runners,
            queued_requests=loads.queued_requests,
        )

    async def DrainRunner(
        self, request: admin_pb2.DrainRunnerRequest, context: Context
    ) -> admin_pb2.DrainRunnerResponse:
        """Is not there yet."""
        async with errors_as_status(context):
            raise NotBuiltYet("DrainRunner is not built yet; a runner finishes its work at SIGTERM")
