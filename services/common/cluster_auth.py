"""The shared secret of internal calls: who does not know it is not part of the deployment."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from services.common.errors import Unauthenticated
from services.common.refusal import refusing_handler

_OPEN = ("/grpc.health.",)


def cluster_metadata(token: str | None) -> dict[str, str]:
    """Returns the metadata that an internal call carries."""
    return {"authorization": f"Bearer {token}"} if token else {}


class ClusterAuthInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls without the deployment's token; health stays open to probes."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        self._refusal = refusing_handler(Unauthenticated("wrong or missing cluster token"))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Passes a call on if its token is right."""
        if handler_call_details.method.startswith(_OPEN):
            return await continuation(handler_call_details)
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        given_bytes = given.encode() if isinstance(given, str) else given
        if hmac.compare_digest(given_bytes, self._expected):
            return await continuation(handler_call_details)
        return self._refusal
