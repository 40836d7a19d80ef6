"""Processes die; the instance goes on."""

import itertools

from stack import Stack, until

QUESTION = "What is continuous batching?"


def test_a_killed_runner_comes_back_and_finds_its_cache_again(stack: Stack) -> None:
    first = stack.complete(QUESTION).json()
    until(lambda: stack.stored_blocks() > 0, what="a published block")
    old = stack.kill("runner-0")
    stack.until_serving("runner-0", instead_of=old)
    again = stack.complete(QUESTION).json()
    assert again["choices"] == first["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_stream_outlives_its_runner(stack: Stack) -> None:
    with stack.client() as client:
        whole = client.chat(QUESTION, temperature=0).text
        with client.stream_chat(QUESTION, temperature=0, timeout_seconds=90) as stream:
            text = "".join(piece.text for piece in itertools.islice(stream, 3))
            old = stack.kill("runner-0")
            rest = list(stream)
    assert text + "".join(piece.text for piece in rest) == whole
    assert [piece.sequence for piece in rest] == list(range(3, 3 + len(rest)))
    assert rest[-1].finish_reason == "stop"
    stack.until_serving("runner-0", instead_of=old)


def test_serving_goes_on_without_redis(stack: Stack) -> None:
    before = stack.complete(QUESTION).json()
    old = stack.kill("redis")
    after = stack.complete(QUESTION).json()
    assert after["choices"] == before["choices"]
    stack.until_serving("redis", instead_of=old)
    assert stack.complete(QUESTION).json()["choices"] == before["choices"]


def test_serving_goes_on_without_a_kvstore(stack: Stack) -> None:
    old = stack.kill("kvstore")
    assert stack.complete(QUESTION).status_code == 200
    stack.until_serving("kvstore", instead_of=old)


def test_a_killed_scheduler_comes_back_and_serves(stack: Stack) -> None:
    old = stack.kill("scheduler")
    stack.until_serving("scheduler", instead_of=old)
    until(lambda: stack.status()["gateway"]["health"] == "SERVING", what="a ready gateway")
    assert stack.complete(QUESTION).status_code == 200


def test_one_service_can_be_restarted_by_name(stack: Stack) -> None:
    old = stack.pid("gateway")
    result = stack.headrace("restart", "gateway")
    assert result.returncode == 0, result.stderr
    assert stack.pid("gateway") != old
    assert stack.complete(QUESTION).status_code == 200
