"""A server interceptor that parses requests within the call: grpc itself answers UNKNOWN to what is no message."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.common.errors import InvalidRequest, errors_as_status

Context = grpc.aio.ServicerContext[Any, Any]


class RequestParsingInterceptor(grpc.aio.ServerInterceptor):
    """Refuses a message that is none of its type as INVALID_ARGUMENT; streams of requests are only our own processes'.

    Stands behind TraceInterceptor, which takes streaming handlers of every kind.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Returns the handler of bytes that parses them for the one of messages."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.request_deserializer is None:
            return handler
        parse, serializer = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary:
            answer = _answering(handler.unary_unary, parse)
            return grpc.unary_unary_rpc_method_handler(answer, response_serializer=serializer)
        stream = _streaming(handler.unary_stream, parse)
        return grpc.unary_stream_rpc_method_handler(stream, response_serializer=serializer)


def _answering(behaviour: Any, parse: Callable[[bytes], Any]) -> Any:
    async def answer(raw: bytes, context: Context) -> Any:
        try:
            request = parse(raw)
        except DecodeError as error:
            return await _refuse(error, context)
        return await behaviour(request, context)

    return answer


def _streaming(behaviour: Any, parse: Callable[[bytes], Any]) -> Any:
    def stream(raw: bytes, context: Context) -> Any:
        try:
            request = parse(raw)
        except DecodeError as error:
            return _refuse(error, context)
        return behaviour(request, context)

    return stream


async def _refuse(error: DecodeError, context: Context) -> None:
    async with errors_as_status(context):
        raise InvalidRequest("", f"the message cannot be decoded: {error}; encode it as its proto says")
