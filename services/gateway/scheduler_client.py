"""Calls the scheduler: one Submit stream per request, and GetLoads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from opentelemetry import context as otel_context

from headrace.v1 import scheduler_pb2, scheduler_pb2_grpc
from services.common.cluster_auth import cluster_metadata
from services.common.errors import (
    DeadlineExceeded,
    FieldViolation,
    RemoteError,
    ServiceError,
    Unavailable,
    from_rpc_error,
)
from services.common.grpc_options import open_channel
from services.common.tracing import client_span
from services.gateway.model_directory import RETRY_SECONDS

_SUBMIT = "headrace.v1.SchedulerService/Submit"
# What these say about the internal call says nothing about the client's.
_NOT_THE_CLIENTS = {
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}

# The scheduler names its own message's fields, clients know those of the public API.
_PUBLIC_FIELDS = {
    "prompt_token_ids": "prompt",
    "max_tokens": "stop.max_tokens",
    "min_tokens": "stop.min_tokens",
    "stop_token_ids": "stop.stop_token_ids",
    "priority": "options.priority",
}

SubmitStream = grpc.aio.StreamStreamCall[scheduler_pb2.SubmitRequest, scheduler_pb2.SubmitResponse]


class SubmitCall:
    """One request at the scheduler."""

    def __init__(self, call: SubmitStream, address: str) -> None:
        self._call = call
        self._address = address

    async def read(self) -> scheduler_pb2.SubmitResponse | None:
        """Returns the next news; None at the end of the stream."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _service_error(error, self._address) from error
        return message if isinstance(message, scheduler_pb2.SubmitResponse) else None

    async def stop(self, choice: int) -> None:
        """Says that a choice's text has matched a stop string."""
        try:
            await self._call.write(scheduler_pb2.SubmitRequest(stop=scheduler_pb2.StopChoice(choice=choice)))
        except grpc.aio.AioRpcError as error:
            raise _service_error(error, self._address) from error


class SchedulerClient:
    """The gateway's connection to its scheduler."""

    def __init__(self, address: str, cluster_token: str | None) -> None:
        self._address = address
        self._metadata = cluster_metadata(cluster_token)
        self._channel = open_channel(address)
        self._stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub = scheduler_pb2_grpc.SchedulerServiceStub(
            self._channel
        )

    @asynccontextmanager
    async def submit(
        self, start: scheduler_pb2.SubmitStart, *, timeout_seconds: float, parent: otel_context.Context
    ) -> AsyncIterator[SubmitCall]:
        """Opens a Submit stream; leaving the block ends it, and with it the request's work."""
        with client_span(_SUBMIT, parent, request_id=start.request_id) as (_span, metadata):
            call: SubmitStream = self._stub.Submit(
                timeout=timeout_seconds, metadata=(*metadata, *self._metadata.items())
            )
            try:
                try:
                    await call.write(scheduler_pb2.SubmitRequest(start=start))
                except grpc.aio.AioRpcError as error:
                    raise _service_error(error, self._address) from error
                yield SubmitCall(call, self._address)
            finally:
                # Without effect on a stream that has ended by itself.
                call.cancel()

    async def get_loads(self, timeout_seconds: float) -> scheduler_pb2.GetLoadsResponse:
        """Asks which runners are attached."""
        try:
            return await self._stub.GetLoads(
                scheduler_pb2.GetLoadsRequest(), timeout=timeout_seconds, metadata=tuple(self._metadata.items())
            )
        except grpc.aio.AioRpcError as error:
            raise _service_error(error, self._address) from error

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()


def _service_error(error: grpc.aio.AioRpcError, address: str) -> ServiceError:
    remote = from_rpc_error(error)
    has_details = isinstance(remote, RemoteError) and remote.reason != error.code().name
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return remote if has_details else DeadlineExceeded("the call's time limit has passed; allow more time")
    if error.code() in _NOT_THE_CLIENTS or (error.code() is grpc.StatusCode.UNAVAILABLE and not has_details):
        return Unavailable(
            f"the scheduler at {address} cannot be used: {error.details() or error.code().name}; try again",
            retry_after_seconds=remote.retry_after_seconds or RETRY_SECONDS,
        )
    remote.violations = tuple(
        FieldViolation(_PUBLIC_FIELDS.get(item.field, item.field), item.description) for item in remote.violations
    )
    return remote
