"""An instance with a trace receiver, requests with a known trace, and what they leave in logs."""

import dataclasses
import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
from otlp_receiver import OtlpReceiver, Trace
from stack import HEADRACE, Stack, bare_environment

from headrace.v1 import generation_pb2, inference_pb2, inference_pb2_grpc


def new_question() -> str:
    """Returns a prompt of several blocks that nobody has asked before, so that every cache is looked up."""
    return f"{secrets.token_hex(8)}: {' '.join(f'Fact {number} about mills.' for number in range(8))}"


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The span that a client would be in."""

    trace_id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    is_traced: bool = True

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What its calls carry."""
        return (("traceparent", f"00-{self.trace_id}-{self.span_id}-01"),) if self.is_traced else ()


@dataclasses.dataclass(frozen=True, slots=True)
class TracedStack(Stack):
    """One instance that exports its spans at once."""

    endpoint: str

    def headrace(self, *arguments: str, timeout: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Runs the command line for this instance."""
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        return subprocess.run(
            [str(HEADRACE), *arguments, "--data-dir", str(self.data_dir)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=bare_environment() | traced,
            check=False,
        )

    @contextmanager
    def stub(self) -> Iterator[inference_pb2_grpc.InferenceServiceStub]:
        """Opens a plain stub, without a client of ours between."""
        with grpc.insecure_channel(self.grpc_address) as channel:
            yield inference_pb2_grpc.InferenceServiceStub(channel)

    @contextmanager
    def http_stream(self, caller: Caller, question: str, **fields: Any) -> Iterator[httpx.Response]:
        """Opens a greedy chat over an HTTP stream."""
        messages = [{"role": "user", "content": question}]
        body = {"model": "headrace-tiny", "messages": messages, "temperature": 0, "stream": True, **fields}
        url = f"{self.http_url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=dict(caller.metadata), timeout=60) as reply:
            yield reply

    def log_lines(self, trace_id: str) -> dict[str, list[dict[str, Any]]]:
        """Returns the log lines of a trace by service."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted((self.data_dir / "logs").glob("*.log")):
            if path.stem in ("redis", "supervisor"):
                continue
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
            found[path.stem] = [line for line in lines if line.get("trace_id") == trace_id]
        return found


def chat_request(text: str, **stop: Any) -> inference_pb2.ChatRequest:
    """Returns a greedy chat of one message."""
    message = inference_pb2.Message(role=inference_pb2.ROLE_USER, parts=[inference_pb2.Part(text=text)])
    return inference_pb2.ChatRequest(
        conversation=inference_pb2.Conversation(messages=[message]),
        sampling=generation_pb2.SamplingParams(temperature=0),
        stop=generation_pb2.StopCondition(**stop),
    )


def settled(receiver: OtlpReceiver, caller: Caller, *names: str) -> Trace:
    """Waits until spans of these names have come, and then until nothing more comes for a while."""
    trace = receiver.wait_for(caller.trace_id, lambda found: all(found.all_named(name) for name in names))
    while True:
        time.sleep(0.4)  # several export intervals: what is counted as once must not come a second time
        now = receiver.trace(caller.trace_id)
        if len(now.spans) == len(trace.spans):
            return now
        trace = now
