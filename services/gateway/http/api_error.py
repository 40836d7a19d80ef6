"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

import math
from dataclasses import dataclass

import grpc

from services.common.errors import Cancelled, ServiceError
from services.gateway.http.brief import brief
from services.gateway.http.param_names import ParamNames

CLIENT_CLOSED_REQUEST = 499
_RETRY_SECONDS = 1.0
_MESSAGE_CHARACTERS = 500
_PARAM_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ApiError:
    """What a client is told about a failed request; texts of the client's that it repeats are cut short."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", brief(self.message, _MESSAGE_CHARACTERS))
        if self.param is not None:
            object.__setattr__(self, "param", brief(self.param, _PARAM_CHARACTERS))

    def body(self) -> dict[str, dict[str, str | None]]:
        """Returns the JSON body."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class HttpFault(Exception):
    """A fault that only HTTP knows, already in the client's words."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class ClientGone(Cancelled):
    """The client closed its connection."""

    reason = "CLIENT_GONE"


def bad_param(param: str, message: str, code: str = "invalid_value") -> HttpFault:
    """Returns the fault of a wrong parameter."""
    return HttpFault(ApiError(400, message, param=param, code=code))


_STATUS = grpc.StatusCode
# gRPC code → HTTP status and OpenAI's error type.
_KINDS: dict[grpc.StatusCode, tuple[int, str]] = {
    _STATUS.INVALID_ARGUMENT: (400, "invalid_request_error"),
    _STATUS.OUT_OF_RANGE: (400, "invalid_request_error"),
    _STATUS.FAILED_PRECONDITION: (400, "invalid_request_error"),
    _STATUS.UNAUTHENTICATED: (401, "invalid_request_error"),
    _STATUS.PERMISSION_DENIED: (403, "permission_error"),
    _STATUS.NOT_FOUND: (404, "invalid_request_error"),
    _STATUS.ALREADY_EXISTS: (409, "invalid_request_error"),
    _STATUS.ABORTED: (409, "invalid_request_error"),
    _STATUS.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    _STATUS.CANCELLED: (CLIENT_CLOSED_REQUEST, "cancelled"),
    _STATUS.UNAVAILABLE: (503, "server_error"),
    _STATUS.DEADLINE_EXCEEDED: (504, "timeout_error"),
    _STATUS.UNIMPLEMENTED: (501, "invalid_request_error"),
}
# Reasons that OpenAI's clients know under another name.
_CODES = {"INVALID_ARGUMENT": "invalid_value", "UNAUTHENTICATED": "invalid_api_key"}
_RETRIED = (_STATUS.UNAVAILABLE, _STATUS.RESOURCE_EXHAUSTED)


def api_error(error: ServiceError, names: ParamNames) -> ApiError:
    """Says a service's error in OpenAI's words, with the parameter's name as the client wrote it."""
    status, kind = _KINDS.get(error.code, (500, "server_error"))
    fields = [(names.of_field(item.field), item.description) for item in error.violations]
    param = fields[0][0] if fields else names.of_resource(error.resource)
    said = "; ".join(f"{field}: {text}" if field else text for field, text in fields)
    code = _CODES.get(error.reason, error.reason.lower())
    return ApiError(status, said or error.message, kind, param or None, code, _headers(error))


def _headers(error: ServiceError) -> tuple[tuple[str, str], ...]:
    if error.code is _STATUS.UNAUTHENTICATED:
        return (("www-authenticate", "Bearer"),)
    seconds = error.retry_after_seconds
    if seconds is None and error.code in _RETRIED:
        seconds = _RETRY_SECONDS
    if seconds is None:
        return ()
    # Retry-After takes whole seconds; OpenAI's clients prefer the finer one.
    return (("retry-after", str(max(1, math.ceil(seconds)))), ("retry-after-ms", str(int(seconds * 1000))))
