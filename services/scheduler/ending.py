"""How a request ends: once, with one reason, and with nothing left behind."""

from services.common.errors import ServiceError
from services.scheduler.request import FinishReason, Phase, Request

_FAILURES = {FinishReason.CANCELLED: "CANCELLED", FinishReason.DEADLINE: "DEADLINE_EXCEEDED"}


def end_request(request: Request, reason: FinishReason, now: float, error: ServiceError | None = None) -> bool:
    """Ends a request wherever it is and frees its blocks; tells whether it was not DONE yet."""
    if request.is_done:
        return False
    if request.residency is not None:
        request.residency.session.release(request.residency)
    request.phase, request.finish, request.error = Phase.DONE, reason, error
    request.clock.stop(now, error.reason if error is not None else _FAILURES.get(reason))
    request.outbox.close()
    return True
