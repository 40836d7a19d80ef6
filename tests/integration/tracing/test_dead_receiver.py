"""A whole instance whose trace receiver is away. OBS-8."""

import statistics
import time
from pathlib import Path

import pytest
from otlp_receiver import OtlpReceiver
from stack import free_port_base
from traced_stack import Caller, TracedStack, chat_request, new_question


def median_seconds(stack: TracedStack, requests: int = 9) -> float:
    """Times short requests."""
    took = []
    with stack.stub() as stub:
        for _ in range(requests):
            began = time.monotonic()
            stub.Chat(chat_request(new_question(), max_tokens=4), metadata=Caller().metadata, timeout=30)
            took.append(time.monotonic() - began)
    return statistics.median(took)


@pytest.mark.slow
def test_an_instance_serves_as_fast_without_its_trace_receiver(
    stack: TracedStack, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    with_receiver = median_seconds(stack)
    alone = TracedStack(tmp_path / "alone", free_port_base(), "http://127.0.0.1:1")
    try:
        started = alone.up()
        assert started.returncode == 0, started.stdout + started.stderr
        assert median_seconds(alone) < 2 * with_receiver + 0.1
        began = time.monotonic()
        assert alone.down().returncode == 0
        assert time.monotonic() - began < 20
    finally:
        alone.down()
