"""A real gateway in front of a real scheduler; only the runner's next token is scripted."""

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from scheduler_process import LocalScheduler, local_scheduler
from scripted_engine import Script
from scripted_runner import ScriptedRunner, scripted_hello
from tokenizer_folder import byte_level, write_folder

from headrace.v1 import inference_pb2 as pb
from headrace.v1 import inference_pb2_grpc
from services.common.config import ProcessConfig
from services.common.grpc_options import open_channel
from services.common.model_folder import tokenizer_digest
from services.gateway.config import GatewayConfig
from services.gateway.gateway import Gateway
from services.scheduler.config import SchedulerConfig

MODEL = "scripted"
BOS, EOS, FIRST_BYTE = 0, 1, 4
WORDS = (b"\xf0\x9f\x98", b"DEF", b"HI")
VOCABULARY = 4 + 256 + 5
CONTEXT = 2048


def ids_of(data: bytes) -> list[int]:
    """Returns one id per byte."""
    return [FIRST_BYTE + byte for byte in data]


def word_id(word: bytes) -> int:
    """Returns the id of a word that is one token."""
    return int(byte_level(WORDS).backend_tokenizer.encode(word.decode("utf-8", "ignore") or "😀").ids[1])


def saying(token_ids: Iterable[int], *, then: int | None = EOS) -> Script:
    """Answers every request with these ids, and then with one id for ever."""
    said = list(token_ids)
    prompts: dict[str, int] = {}

    def script(request_id: str, known: list[int]) -> int:
        position = len(known) - prompts.setdefault(request_id, len(known))
        if position < len(said):
            return said[position]
        return EOS if then is None else then

    return script


@dataclass
class Stack:
    """A running deployment and a client's channel to it."""

    address: str
    admin_address: str
    gateway: Gateway
    scheduler: LocalScheduler
    runner: ScriptedRunner
    channel: grpc.aio.Channel
    folder: Path

    @property
    def client(self) -> Any:
        """The public API."""
        return inference_pb2_grpc.InferenceServiceStub(self.channel)

    @property
    def held_blocks(self) -> int:
        """Counts the blocks that requests hold."""
        return sum(session.pool.used for session in self.scheduler.parts.fleet.sessions)

    @property
    def running(self) -> int:
        """Counts the requests that runners work on."""
        return sum(len(session.running) for session in self.scheduler.parts.fleet.sessions)


def hello_of(folder: Path, **overrides: Any) -> Any:
    """Builds the hello of a runner that serves this folder's model."""
    settings: dict[str, Any] = {
        "block_count": 512,
        "context_length": CONTEXT,
        "vocabulary_size": VOCABULARY,
        "eos_token_ids": (EOS,),
        "step_tokens": 2048,
        "model_name": MODEL,
        "tokenizer_digest": tokenizer_digest(folder),
    }
    return scripted_hello(**(settings | overrides))


def config_for(folder: Path, sockets: Path, **overrides: Any) -> GatewayConfig:
    """Builds the configuration of a gateway that listens on sockets in a folder."""
    settings: dict[str, Any] = {
        "model": str(folder),
        "model_name": MODEL,
        "listen": (f"unix:{sockets}/public.sock",),
        "http_listen": "127.0.0.1:0",
        "admin_listen": f"unix:{sockets}/admin.sock",
        "metrics_listen": "127.0.0.1:0",
        "scheduler": f"unix:{sockets}/scheduler.sock",
        "poll_seconds": 0.2,
    }
    return GatewayConfig(**(settings | overrides))


@asynccontextmanager
async def stack(
    script: Script,
    *,
    hello: dict[str, Any] | None = None,
    process: ProcessConfig | None = None,
    runner_wait_seconds: float = 30.0,
    **config: Any,
) -> AsyncIterator[Stack]:
    """Runs a deployment until the block is left. Sockets live in a short path."""
    with tempfile.TemporaryDirectory(prefix="hr") as name:
        sockets = Path(name)
        folder = write_folder(sockets / "model", byte_level(WORDS), vocab_size=VOCABULARY)
        gateway = Gateway(
            config_for(folder, sockets, **config), process or ProcessConfig(reflection=False, drain_seconds=0.2)
        )
        patience = SchedulerConfig(kvstore=None, runner_wait_seconds=runner_wait_seconds)
        async with local_scheduler(sockets, patience) as scheduler:
            await gateway.start()
            address = f"unix:{sockets}/public.sock"
            runner = ScriptedRunner(scheduler.address, hello_of(folder, **(hello or {})), script)
            try:
                async with runner, open_channel(address) as channel:
                    await runner.attached.wait()
                    yield Stack(address, f"unix:{sockets}/admin.sock", gateway, scheduler, runner, channel, folder)
            finally:
                await gateway.stop()


def text_request(text: str = "A", **fields: Any) -> pb.GenerateRequest:
    """Builds a request that continues a text."""
    return pb.GenerateRequest(prompt=pb.Prompt(text=text), **fields)


def conversation(text: str = "hi") -> pb.Conversation:
    """Builds a conversation of one message."""
    return pb.Conversation(messages=[pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text=text)])])


async def collect(call: Any) -> list[pb.Chunk]:
    """Reads the rest of a stream."""
    chunks = []
    while (chunk := await call.read()) is not grpc.aio.EOF:
        chunks.append(chunk)
    return chunks


@dataclass(frozen=True)
class Refusal:
    """A failed call's status, unpacked."""

    code: grpc.StatusCode
    message: str
    reason: str
    fields: list[str]
    retry_seconds: float | None
    resource: str


async def refusal_of(call: Any) -> Refusal:
    """Awaits a call or reads a stream, expects it to fail, and unpacks how."""
    try:
        if hasattr(call, "read"):
            await collect(call)
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return _unpack(error)
    raise AssertionError("the call succeeded")


def _unpack(error: grpc.aio.AioRpcError) -> Refusal:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    reason, resource, fields, retry = "", "", [], None
    for detail in status.details if status is not None else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        delay, what = error_details_pb2.RetryInfo(), error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            assert info.domain == "headrace"
            reason = info.reason
        elif detail.Unpack(bad):
            fields = [violation.field for violation in bad.field_violations]
        elif detail.Unpack(delay):
            retry = delay.retry_delay.ToMilliseconds() / 1000
        elif detail.Unpack(what):
            resource = what.resource_name
    return Refusal(error.code(), error.details() or "", reason, fields, retry, resource)
