"""One way for an error to leave a process, and to come back out of a status: google.rpc details on both sides."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN = "headrace"

log = structlog.get_logger()


@dataclasses.dataclass(frozen=True, slots=True)
class FieldViolation:
    """A request field and what is wrong with it."""

    field: str
    description: str


class ServiceError(Exception):
    """An error with a cause that the caller can act on; subclasses name the gRPC code and the reason."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    reason: str = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        violations: tuple[FieldViolation, ...] = (),
        retry_after_seconds: float | None = None,
        resource: tuple[str, str] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.violations = violations
        self.retry_after_seconds = retry_after_seconds
        self.resource = resource
        self.metadata = metadata or {}


class InvalidRequest(ServiceError):
    """A field of the request is wrong: the message says what, the limit and what would be right."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_ARGUMENT"

    def __init__(self, field: str, description: str, *, metadata: dict[str, str] | None = None) -> None:
        super().__init__(
            f"{field}: {description}" if field else description,
            violations=(FieldViolation(field, description),),
            metadata=metadata,
        )


class ContextLengthExceeded(InvalidRequest):
    """Prompt and output together do not fit the model's context or the runner's memory."""

    reason = "CONTEXT_LENGTH_EXCEEDED"


class ModelNotFound(ServiceError):
    """No runner serves this model."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "MODEL_NOT_FOUND"


class RequestNotFound(ServiceError):
    """No request of this caller has this id."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "REQUEST_NOT_FOUND"


class AlreadyExists(ServiceError):
    """Something of this name is there already."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "ALREADY_EXISTS"


class Unauthenticated(ServiceError):
    """No credentials, or wrong ones."""

    code = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class Overloaded(ServiceError):
    """A limit on waiting work is reached; trying later helps."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"


class Unavailable(ServiceError):
    """Something that is needed is away for the moment; trying later helps."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


class FailedPrecondition(ServiceError):
    """The parts of the deployment do not fit together; trying later does not help."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "FAILED_PRECONDITION"


class NoRunner(Unavailable):
    """Nobody can take the request, and nobody came in time."""

    reason = "NO_RUNNER"


class DeadlineExceeded(ServiceError):
    """The call's own time limit has passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class Cancelled(ServiceError):
    """The caller ended the request."""

    code = grpc.StatusCode.CANCELLED
    reason = "CANCELLED"


class NotBuiltYet(ServiceError):
    """The contract has this call, this version does not answer it."""

    code = grpc.StatusCode.UNIMPLEMENTED
    reason = "NOT_IMPLEMENTED"


class GenerationFailed(ServiceError):
    """The model could not go on with this request."""

    code = grpc.StatusCode.INTERNAL
    reason = "GENERATION_FAILED"


class RemoteError(ServiceError):
    """An error that another process reported, with its own code and reason."""

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, **details: object) -> None:
        super().__init__(message, **details)  # type: ignore[arg-type]
        self.code = code
        self.reason = reason


_NUMBERS = {code: code.value[0] for code in grpc.StatusCode}

# A status travels in trailing metadata, of which the other side takes 8 KiB; text may triple on the way.
_TEXT_BYTES = 700
_VIOLATIONS = 4


def _bounded(text: str, most_bytes: int = _TEXT_BYTES) -> str:
    """Returns text that is valid and short enough for a status, whatever a client put into it."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= most_bytes:
        return raw.decode()
    return raw[:most_bytes].decode("utf-8", "ignore") + "…"


def to_status(error: ServiceError) -> status_pb2.Status:
    """Packs an error into google.rpc.Status: ErrorInfo always, the other details where they fit."""
    details: list[any_pb2.Any] = []

    def add(message: object) -> None:
        packed = any_pb2.Any()
        packed.Pack(message)  # type: ignore[arg-type]
        details.append(packed)

    metadata = {_bounded(key, 60): _bounded(value, 200) for key, value in list(error.metadata.items())[:8]}
    add(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata))
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(
                field=_bounded(item.field, 120), description=_bounded(item.description, 300)
            )
            for item in error.violations[:_VIOLATIONS]
        ]
        add(error_details_pb2.BadRequest(field_violations=violations))
    if error.retry_after_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(int(error.retry_after_seconds * 1000))
        add(retry)
    if error.resource is not None:
        kind, name = (_bounded(part, 200) for part in error.resource)
        add(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name))
    return status_pb2.Status(code=_NUMBERS[error.code], message=_bounded(error.message), details=details)


def from_rpc_error(error: grpc.aio.AioRpcError) -> ServiceError:
    """Rebuilds the error behind a failed call; one without our details keeps its code and text."""
    code = error.code()
    if code is grpc.StatusCode.CANCELLED:
        # A call that we cancel raises CancelledError; this one the server dropped, as a stopping one does.
        code = grpc.StatusCode.UNAVAILABLE
    reason = code.name
    violations: tuple[FieldViolation, ...] = ()
    retry: float | None = None
    resource: tuple[str, str] | None = None
    metadata: dict[str, str] = {}
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        delay = error_details_pb2.RetryInfo()
        what = error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            code, reason, metadata = error.code(), info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            violations = tuple(FieldViolation(item.field, item.description) for item in bad.field_violations)
        elif detail.Unpack(delay):
            retry = delay.retry_delay.ToMilliseconds() / 1000
        elif detail.Unpack(what):
            resource = (what.resource_type, what.resource_name)
    return RemoteError(
        code,
        reason,
        error.details() or code.name,
        violations=violations,
        retry_after_seconds=retry,
        resource=resource,
        metadata=metadata,
    )


def _details(error: grpc.aio.AioRpcError) -> list[any_pb2.Any]:
    try:
        # AioRpcError lacks the trailing_metadata type that rpc_status asks for, but has the method.
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
    except (ValueError, DecodeError):
        # Something between us has put another code or text in front of the details.
        return []
    return [] if status is None else list(status.details)


@asynccontextmanager
async def errors_as_status(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Ends the call with the status of whatever error leaves the block; only a bug of ours becomes INTERNAL."""
    try:
        yield
    except ServiceError as error:
        await context.abort_with_status(rpc_status.to_status(to_status(error)))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Something inside was cancelled, not this call: grpc would leave the client waiting for a status.
        inner = Unavailable("an inner task of this call was cancelled; try again")
        await context.abort_with_status(rpc_status.to_status(to_status(inner)))
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        log.exception("unexpected error in a call")
        bug = ServiceError(f"unexpected {type(error).__name__}; the server's log has the trace of this bug")
        await context.abort_with_status(rpc_status.to_status(to_status(bug)))
