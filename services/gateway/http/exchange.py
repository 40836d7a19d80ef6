"""What is known about one HTTP request while it is served."""

import re
import time
import uuid
from dataclasses import dataclass, field

from opentelemetry.context import Context
from starlette.requests import Request
from starlette.types import Scope

from services.gateway.http.api_error import ApiError
from services.gateway.http.param_names import ParamNames

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_KEY = "headrace.exchange"


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    request_id: str
    parent: Context
    """Its SERVER span's context."""
    started: float = field(default_factory=time.monotonic)
    created_unix_seconds: int = field(default_factory=lambda: int(time.time()))
    names: ParamNames = field(default_factory=ParamNames)
    status: int | None = None
    """Of the answer, once it has begun."""
    error: ApiError | None = None
    """How it failed, also when the status had been sent before."""

    def elapsed_milliseconds(self) -> int:
        """Returns the time since the request's head arrived."""
        return int((time.monotonic() - self.started) * 1000)


def request_id_of(header: str | None) -> str:
    """Returns the client's request id where it is usable, else a new one."""
    if header is not None and REQUEST_ID.fullmatch(header):
        return header
    return uuid.uuid4().hex


def put_exchange(scope: Scope, exchange: Exchange) -> None:
    """Binds the exchange to its ASGI scope."""
    scope[_KEY] = exchange


def exchange_of(request: Request) -> Exchange:
    """Returns the request's exchange."""
    exchange = request.scope[_KEY]
    assert isinstance(exchange, Exchange)
    return exchange
