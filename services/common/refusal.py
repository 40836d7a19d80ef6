"""How an interceptor refuses a call."""

from typing import Any

import grpc
from grpc_status import rpc_status

from services.common.errors import ServiceError, to_status


def refusing_handler(error: ServiceError) -> Any:
    """Returns a handler for methods of every kind that answers nothing but this error.

    It is one of streams on both sides, so it waits for no first message, which may never come.
    """
    status = rpc_status.to_status(to_status(error))

    async def refuse(_requests: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.abort_with_status(status)

    return grpc.stream_stream_rpc_method_handler(refuse)
