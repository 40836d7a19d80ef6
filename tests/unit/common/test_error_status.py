"""Errors leave a process as google.rpc details and come back as they were."""

import asyncio
import time

import grpc
import pytest
import structlog
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from services.common.errors import (
    DOMAIN,
    Cancelled,
    ContextLengthExceeded,
    FieldViolation,
    InvalidRequest,
    ModelNotFound,
    NotBuiltYet,
    Overloaded,
    RemoteError,
    ServiceError,
    Unavailable,
    errors_as_status,
    from_rpc_error,
    to_status,
)

METHOD = "/test.v1.Echo/Run"


async def failure_of(channel: grpc.aio.Channel) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(METHOD)(b"", timeout=5)
    return caught.value


async def after(serve, error: BaseException) -> grpc.aio.AioRpcError:
    """Returns what a client sees when a handler raises this."""

    async def run(_request, context):
        async with errors_as_status(context):
            raise error

    return await failure_of(await serve({"Run": ("unary_unary", run)}))


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("sampling.temperature", "is 3; at most 2", metadata={"limit": "2"}),
        ContextLengthExceeded("prompt", "has 900 tokens; this model takes 512"),
        ModelNotFound("no runner serves gpt-9; it serves tiny", resource=("model", "gpt-9")),
        Overloaded("64 requests wait already", retry_after_seconds=1.25),
        Unavailable("kein Läufer da, 没有"),
        NotBuiltYet("ResumeStream comes later"),
        RemoteError(grpc.StatusCode.ABORTED, "LOST", "gone", violations=(FieldViolation("a", "b"),)),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_comes_back_from_a_call_as_it_was(serve, error):
    seen = await after(serve, error)
    back = from_rpc_error(seen)

    assert seen.code() is error.code
    assert (back.code, back.reason, back.message) == (error.code, error.reason, error.message)
    assert back.violations == error.violations
    assert back.retry_after_seconds == error.retry_after_seconds
    assert back.resource == error.resource
    assert back.metadata == error.metadata


async def test_error_info_is_always_there(serve):
    status = rpc_status.from_call(await after(serve, Unavailable("away")))

    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == (DOMAIN, "UNAVAILABLE")


async def test_a_huge_or_broken_text_in_an_error_still_arrives(serve):
    """What a client sent may be quoted; trailing metadata beyond 8 KiB would hide the cause from it."""
    word = "水" * 5_000 + "\ud800"
    error = InvalidRequest(word, word, metadata={word: word, "limit": "5"})
    error.violations *= 50

    seen = await after(serve, error)

    assert seen.code() is grpc.StatusCode.INVALID_ARGUMENT
    back = from_rpc_error(seen)
    assert back.message.startswith("水水")
    assert back.message.endswith("…")
    assert back.violations
    assert back.metadata["limit"] == "5"


async def test_a_lone_surrogate_in_an_error_is_replaced(serve):
    seen = await after(serve, InvalidRequest("stop", "holds \ud800"))

    assert seen.details() == "stop: holds ?"


async def test_a_status_of_somebody_else_keeps_its_code_and_text(serve):
    async def run(_request, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    back = from_rpc_error(await failure_of(await serve({"Run": ("unary_unary", run)})))

    assert (back.code, back.reason, back.message) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "RESOURCE_EXHAUSTED",
        "full",
    )


@pytest.mark.parametrize(("explains", "code"), [(False, "UNAVAILABLE"), (True, "CANCELLED")])
async def test_a_call_that_the_server_dropped_may_be_repeated(serve, explains, code):
    """grpc answers CANCELLED, without details, to what arrives while it stops."""

    async def run(_request, context):
        if explains:
            await context.abort_with_status(rpc_status.to_status(to_status(Cancelled("by Cancel"))))
        await context.abort(grpc.StatusCode.CANCELLED, "")

    back = from_rpc_error(await failure_of(await serve({"Run": ("unary_unary", run)})))

    assert (back.code.name, back.reason) == (code, code)


@pytest.mark.parametrize("details", [to_status(ModelNotFound("gone")).SerializeToString(), b"\xff\xff"])
async def test_details_that_do_not_fit_their_status_are_passed_over(serve, details):
    """A proxy may answer in its own name and leave our details behind."""

    async def run(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "proxy", (("grpc-status-details-bin", details),))

    back = from_rpc_error(await failure_of(await serve({"Run": ("unary_unary", run)})))

    assert (back.code, back.reason, back.message) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE", "proxy")


async def test_a_cancelled_inner_task_gives_the_client_a_status_at_once(serve):
    """GRPC-4."""

    async def run(_request, context):
        async with errors_as_status(context):
            inner = asyncio.create_task(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(inner.cancel)
            await inner

    channel = await serve({"Run": ("unary_unary", run)})
    began = time.monotonic()
    error = await failure_of(channel)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < 1.0


async def test_a_cancelled_inner_task_ends_a_stream_with_a_status(serve):
    """GRPC-4."""

    async def run(_request, context):
        async with errors_as_status(context):
            yield b"1"
            inner = asyncio.create_task(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(inner.cancel)
            await inner

    channel = await serve({"Run": ("unary_stream", run)})
    call = channel.unary_stream(METHOD)(b"", timeout=5)
    began = time.monotonic()

    assert await call.read() == b"1"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < 1.0


async def test_a_cancelled_call_stays_cancelled(serve):
    started, ended = asyncio.Event(), asyncio.Event()

    async def run(_request, context):
        try:
            async with errors_as_status(context):
                started.set()
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise

    channel = await serve({"Run": ("unary_unary", run)})
    call = channel.unary_unary(METHOD)(b"")
    async with asyncio.timeout(2):
        await started.wait()
        call.cancel()
        await ended.wait()


async def test_a_bug_is_internal_opaque_and_logged(serve):
    with structlog.testing.capture_logs() as lines:
        error = await after(serve, KeyError("/secret/path"))

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert "KeyError" in error.details()
    assert [line["event"] for line in lines] == ["unexpected error in a call"]
    assert from_rpc_error(error).reason == "INTERNAL"


async def test_an_abort_within_the_block_passes(serve):
    async def run(_request, context):
        async with errors_as_status(context):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")

    with structlog.testing.capture_logs() as lines:
        error = await failure_of(await serve({"Run": ("unary_unary", run)}))

    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not now")
    assert lines == []


async def test_a_block_without_error_changes_nothing(serve):
    async def run(request, context):
        async with errors_as_status(context):
            return request

    channel = await serve({"Run": ("unary_unary", run)})

    assert await channel.unary_unary(METHOD)(b"x") == b"x"


def test_every_error_has_a_reason_in_upper_snake():
    kinds = [ServiceError, *_subclasses(ServiceError)]

    assert len(kinds) > 5
    for kind in kinds:
        assert kind.reason.replace("_", "").isalpha()
        assert kind.reason.isupper()
        assert kind.__doc__


def _subclasses(kind: type) -> list[type]:
    return [found for child in kind.__subclasses__() for found in (child, *_subclasses(child))]
