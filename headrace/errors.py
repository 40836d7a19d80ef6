"""What a call of the client can raise: one tree, with the server's own reason and the fields it objects to."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status


@dataclasses.dataclass(frozen=True, slots=True)
class FieldViolation:
    """A request field and what is wrong with it."""

    field: str
    description: str


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorDetails:
    """What the server said beside the message."""

    code: str
    """The gRPC code's name, such as INVALID_ARGUMENT."""
    reason: str
    """The server's own reason, such as CONTEXT_LENGTH_EXCEEDED; the code's name where it gave none."""
    violations: tuple[FieldViolation, ...] = ()
    retry_after_seconds: float | None = None


class HeadraceError(Exception):
    """A call failed; the subclass says in which way."""

    def __init__(self, message: str, details: ErrorDetails) -> None:
        super().__init__(message)
        self.message = message
        self.code = details.code
        self.reason = details.reason
        self.violations = details.violations
        self.retry_after_seconds = details.retry_after_seconds


class InvalidRequest(HeadraceError):
    """A field of the request is wrong; `violations` names it."""


class NotFound(HeadraceError):
    """No such model or request."""


class AuthenticationFailed(HeadraceError):
    """The API key is missing, wrong, or not allowed to do this."""


class Overloaded(HeadraceError):
    """A limit is reached; trying again after `retry_after_seconds` helps."""


class Unavailable(HeadraceError):
    """Nothing answers there for the moment."""


class DeadlineExceeded(HeadraceError):
    """The call's time limit has passed."""


class Cancelled(HeadraceError):
    """The call was cancelled."""


class NotSupported(HeadraceError):
    """This server's version does not answer this call."""


_TYPES: dict[grpc.StatusCode, type[HeadraceError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationFailed,
    grpc.StatusCode.PERMISSION_DENIED: AuthenticationFailed,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
}


def from_rpc_error(error: grpc.RpcError) -> HeadraceError:
    """Builds the error behind a failed call from its status and its google.rpc details."""
    # What a failed call raises is at once its error and its call object, which the stubs do not know.
    code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
    message: str = error.details() or code.name  # type: ignore[attr-defined]
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    details = ErrorDetails(code.name, code.name)
    for packed in status.details if status is not None else ():
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if packed.Unpack(info):
            details = dataclasses.replace(details, reason=info.reason)
        elif packed.Unpack(bad):
            violations = tuple(FieldViolation(item.field, item.description) for item in bad.field_violations)
            details = dataclasses.replace(details, violations=violations)
        elif packed.Unpack(retry):
            seconds = retry.retry_delay.ToMilliseconds() / 1000
            details = dataclasses.replace(details, retry_after_seconds=seconds)
    return _TYPES.get(code, HeadraceError)(message, details)


def invalid_request(field: str, description: str) -> InvalidRequest:
    """Builds the error of a request that never left this process, in the words and form of a server's."""
    code = grpc.StatusCode.INVALID_ARGUMENT.name
    violations = (FieldViolation(field, description),)
    return InvalidRequest(f"{field}: {description}", ErrorDetails(code, code, violations))


@contextmanager
def raising_headrace_errors() -> Iterator[None]:
    """Turns a failed call inside the block into its HeadraceError."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
