"""Asks a fresh instance a question: ready means that it has answered."""

import time

from headrace.client import Client
from headrace.errors import InvalidRequest

QUESTION = "What is a KV cache?"


def ask(address: str, api_key: str | None, timeout_seconds: float = 60.0) -> tuple[str, float]:
    """Returns an answer and the seconds it took; a model without a chat template continues the text instead."""
    started = time.monotonic()
    with Client(address, api_key) as client:
        try:
            answer = client.chat(QUESTION, max_tokens=48, temperature=0, timeout_seconds=timeout_seconds)
        except InvalidRequest:
            answer = client.generate(QUESTION, max_tokens=16, temperature=0, timeout_seconds=timeout_seconds)
    return answer.text, time.monotonic() - started
