"""What a client is told of the scheduler's errors."""

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata
from grpc_status import rpc_status

from services.common.errors import ServiceError, Unavailable, to_status
from services.gateway.scheduler_client import _service_error
from services.scheduler.fleet import RunnersLost, no_runner
from services.scheduler.request import RequestSpec

ADDRESS = "unix:/run/scheduler.sock"


def over_the_wire(error: ServiceError) -> AioRpcError:
    """Makes of it what a failed call raises."""
    status = rpc_status.to_status(to_status(error))
    return AioRpcError(status.code, Metadata(), Metadata(*status.trailing_metadata), status.details)


@pytest.mark.parametrize(
    "error",
    [no_runner(RequestSpec("r", (5,), 1, model="tiny"), 31.0), RunnersLost("this request lost 2 runners")],
)
def test_what_the_scheduler_says_about_runners_reaches_the_client_as_it_is(error: Unavailable) -> None:
    public = _service_error(over_the_wire(error), ADDRESS)

    assert public.code is grpc.StatusCode.UNAVAILABLE
    assert (public.reason, public.message) == (error.reason, error.message)
    assert public.retry_after_seconds == error.retry_after_seconds
    assert ADDRESS not in public.message


def test_a_scheduler_that_cannot_be_reached_is_named() -> None:
    error = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "connection refused")
    public = _service_error(error, ADDRESS)

    assert isinstance(public, Unavailable)
    assert ADDRESS in public.message
    assert public.retry_after_seconds
