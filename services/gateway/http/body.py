"""Reads a request's body: bounded in size and time, strict about what is JSON."""

import asyncio
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from services.gateway.http.api_error import ApiError, ClientGone, HttpFault
from services.gateway.http.settings import HttpSettings

# Above this a refused body is not read to its end just to keep the connection.
_DISCARDED_BYTES = 64 * 1024 * 1024
_CLOSE = (("connection", "close"),)
# Parsing holds the whole process up for as long as it takes, and lists, objects and their keys take the longest.
# Text of so many of these marks has more tokens than one call may send.
_MARKS = 131_072


async def read_body(request: Request, settings: HttpSettings) -> bytes:
    """Returns the body; raises HttpFault where it is too large, too slow, or of another type than JSON."""
    _check_headers(request)
    _check_length(request, settings.body_bytes)
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _read(request, settings.body_bytes)
    except TimeoutError:
        message = f"the request's body did not arrive within {settings.body_seconds:g} s; send it faster or shorter"
        raise HttpFault(ApiError(408, message, code="request_timeout", headers=_CLOSE)) from None
    except ClientDisconnect:
        raise ClientGone("the client closed the connection before its body was complete") from None


def parse_object(body: bytes) -> dict[str, Any]:
    """Parses a JSON object; of a repeated key the last value counts, as it does at OpenAI."""
    if body.count(b"[") + body.count(b"{") > _MARKS or body.count(b":") > _MARKS:
        message = (
            f"the body holds more than {_MARKS} lists and objects, or keys ([, {{ and : in texts count); send less"
        )
        raise HttpFault(ApiError(400, message, code="invalid_value"))
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        message = f"the body is not valid JSON (in UTF-8): {error}"
        raise HttpFault(ApiError(400, message, code="invalid_json")) from None
    if not isinstance(value, dict):
        raise HttpFault(ApiError(400, "the body must be a JSON object", code="invalid_json"))
    return value


def _check_headers(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        # A browser sends this type across origins only after asking, so a web page cannot use a local server.
        message = f"content type {media or '(none)'} is not taken; send the header 'Content-Type: application/json'"
        raise HttpFault(ApiError(415, message, code="unsupported_media_type"))
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        message = f"content encoding {encoding} is not taken; send the body uncompressed"
        raise HttpFault(ApiError(415, message, code="unsupported_content_encoding"))


def _check_length(request: Request, limit: int) -> None:
    declared = int(request.headers.get("content-length", "0"))
    if declared > limit:
        raise _too_large(limit, _CLOSE if declared > _DISCARDED_BYTES else ())


async def _read(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise _too_large(limit, _CLOSE)
    return bytes(body)


def _too_large(limit: int, headers: tuple[tuple[str, str], ...]) -> HttpFault:
    message = f"the request's body is larger than {limit} bytes, the most that is taken; send a shorter prompt"
    return HttpFault(ApiError(413, message, code="request_too_large", headers=headers))
