"""The requests that are running, by tenant and id: for Cancel, and against using an id twice at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.common.errors import AlreadyExists, Cancelled
from services.gateway.caller import Caller


class OpenRequest:
    """A running request that can be told to end."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._end: Callable[[], object] | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        """Ends the request; without effect on one that is ending already."""
        self.is_cancelled = True
        if self._end is not None:
            self._end()

    def on_cancel(self, end: Callable[[], object]) -> None:
        """Says how to end what has begun; ends it at once after a cancel() that came while it was beginning."""
        self._end = end
        if self.is_cancelled:
            end()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled after cancel()."""
        if self.is_cancelled:
            raise Cancelled(f"request {self._request_id} was cancelled by its caller")


class OpenRequests:
    """Knows every running request of this gateway."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], OpenRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def opened(self, caller: Caller, request_id: str) -> Iterator[OpenRequest]:
        """Holds a request's id for as long as it runs; raises AlreadyExists for one that another request has."""
        key = (caller.tenant, request_id)
        if key in self._open:
            raise AlreadyExists(
                f"request {request_id} is running already; use another options.request_id, or cancel that one",
                resource=("request", request_id),
            )
        request = self._open[key] = OpenRequest(request_id)
        try:
            yield request
        finally:
            del self._open[key]

    def cancel(self, caller: Caller, request_id: str) -> bool:
        """Ends a request of this caller; tells whether there was one."""
        request = self._open.get((caller.tenant, request_id))
        if request is None:
            return False
        request.cancel()
        return True
