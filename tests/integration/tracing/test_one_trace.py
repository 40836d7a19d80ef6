"""One request is one connected trace over four processes, however it is asked and however it ends. OBS-5, OBS-7."""

import time
from collections.abc import Callable

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from otlp_receiver import OtlpReceiver, ReceivedSpan, Trace
from traced_stack import Caller, TracedStack, chat_request, new_question, settled

from services.common.tracing import SCHEMA_URL

SUBMIT = "headrace.v1.SchedulerService/Submit"
LOOKUP = "headrace.v1.KvStoreService/Lookup"
STREAM = "headrace.v1.InferenceService/StreamChat"
UNARY = "headrace.v1.InferenceService/Chat"
HTTP = "POST /v1/chat/completions"

# Of every request that runs: the span and its parent.
TREE = {
    "gateway:admit": "root",
    "gateway:tokenize": "root",
    f"gateway:{SUBMIT}": "root",
    "gateway:detokenize": "root",
    f"scheduler:{SUBMIT}": f"gateway:{SUBMIT}",
    "scheduler:kv.lookup": f"scheduler:{SUBMIT}",
    f"kvstore:{LOOKUP}": "scheduler:kv.lookup",
    "scheduler:queue": f"scheduler:{SUBMIT}",
    "scheduler:prefill": f"scheduler:{SUBMIT}",
    "scheduler:decode": f"scheduler:{SUBMIT}",
    "runner:runner.prefill": f"scheduler:{SUBMIT}",
    "runner:runner.decode": f"scheduler:{SUBMIT}",
}

# Of blocks that are stored after the answer, if they are worth it.
LATER = {"headrace.v1.KvStoreService/Lease", "headrace.v1.KvStoreService/Commit", "runner.kv.publish"}


def ask_stream(stack: TracedStack, caller: Caller, question: str) -> int:
    """Asks over a gRPC stream; returns when the first piece came."""
    with stack.stub() as stub:
        chunks = stub.StreamChat(chat_request(question, max_tokens=16), metadata=caller.metadata, timeout=60)
        next(chunks)
        first_at = time.time_ns()
        assert list(chunks)
    return first_at


def ask_unary(stack: TracedStack, caller: Caller, question: str) -> int:
    """Asks once over gRPC."""
    with stack.stub() as stub:
        assert stub.Chat(chat_request(question, max_tokens=16), metadata=caller.metadata, timeout=60).choices
    return 0


def ask_http(stack: TracedStack, caller: Caller, question: str) -> int:
    """Asks over an HTTP stream; returns when the first piece came."""
    with stack.http_stream(caller, question, max_tokens=16) as reply:
        lines = reply.iter_lines()
        next(lines)
        first_at = time.time_ns()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    return first_at


ways = pytest.mark.parametrize(
    ("ask", "root_name"), [(ask_stream, STREAM), (ask_unary, UNARY), (ask_http, HTTP)], ids=["stream", "unary", "http"]
)


def connected(trace: Trace, caller: Caller) -> ReceivedSpan:
    """Asserts that all spans hang together below the caller's; returns the topmost."""
    roots = [span for span in trace.spans if span.parent_id == caller.span_id]
    assert len(roots) == 1, str(trace)
    orphans = [span for span in trace.spans if span is not roots[0] and trace.parent(span) is None]
    assert not orphans, str(trace)
    assert len({span.span_id for span in trace.spans}) == len(trace.spans)
    assert all(span.start <= span.end for span in trace.spans)
    assert all(span.schema_url == SCHEMA_URL for span in trace.spans)
    return roots[0]


def assert_request_id(trace: Trace, root: ReceivedSpan) -> None:
    """Asserts that every span of the request itself names it."""
    request_id = root.attributes["headrace.request_id"]
    assert request_id
    others = [span for span in trace.spans if span.attributes.get("headrace.request_id") != request_id]
    assert not [span for span in others if span.name not in LATER], str(trace)


@ways
def test_a_request_is_one_tree_with_every_stage_once(
    stack: TracedStack, receiver: OtlpReceiver, ask: Callable[..., int], root_name: str
) -> None:
    caller, began = Caller(), time.time_ns()
    first_at = ask(stack, caller, new_question())
    trace = settled(receiver, caller, *TREE)

    root = connected(trace, caller)
    assert (root.service, root.name, root.kind) == ("headrace-gateway", root_name, "SERVER")
    for name, parent in TREE.items():
        expected = root if parent == "root" else trace.named(parent)
        assert trace.parent(trace.named(name)) == expected, f"{name} in\n{trace}"
    assert_request_id(trace, root)
    assert {span.status for span in trace.spans} == {"UNSET"}, str(trace)
    assert {span.name for span in trace.spans} <= {key.partition(":")[2] for key in TREE} | {root_name} | LATER
    # The call's span covers the whole stream, not just the making of it.
    assert began <= root.start
    assert root.end >= max(first_at, trace.named("gateway:detokenize").end, trace.named("scheduler:decode").end)


@ways
def test_a_request_without_a_trace_starts_one(
    stack: TracedStack, receiver: OtlpReceiver, ask: Callable[..., int], root_name: str
) -> None:
    before = {span.trace_id for span in receiver.spans()}
    ask(stack, Caller(is_traced=False), new_question())

    def new_roots() -> list[ReceivedSpan]:
        return [
            span
            for span in receiver.spans()
            if span.trace_id not in before and span.name == root_name and not span.parent_id
        ]

    until_true(lambda: len(new_roots()) == 1)
    assert new_roots()[0].attributes["headrace.request_id"]


def test_a_step_is_linked_to_its_requests_and_not_part_of_them(stack: TracedStack, receiver: OtlpReceiver) -> None:
    caller = Caller()
    ask_stream(stack, caller, new_question())
    trace = settled(receiver, caller, *TREE)
    submit = trace.named(f"scheduler:{SUBMIT}")

    steps = [span for span in receiver.spans() if (caller.trace_id, submit.span_id) in span.links]
    assert steps
    assert {(span.name, span.service) for span in steps} == {("step", "headrace-runner")}
    assert all(span.trace_id != caller.trace_id for span in steps)


@pytest.mark.parametrize("way", ["stream", "http"])
def test_a_client_that_leaves_ends_every_span(stack: TracedStack, receiver: OtlpReceiver, way: str) -> None:
    caller = Caller()
    if way == "stream":
        with stack.stub() as stub:
            call = stub.StreamChat(
                chat_request(new_question(), max_tokens=900, ignore_eos=True), metadata=caller.metadata, timeout=60
            )
            next(call)
            call.cancel()
    else:
        with stack.http_stream(caller, new_question(), max_tokens=900, min_tokens=800) as reply:
            next(reply.iter_lines())
    trace = settled(receiver, caller, *TREE)

    root = connected(trace, caller)
    assert_request_id(trace, root)
    assert_cut_short(trace, root, "CANCELLED")
    assert root.attributes["error.type"] == ("CANCELLED" if way == "stream" else "client_gone")


def test_a_deadline_ends_every_span(stack: TracedStack, receiver: OtlpReceiver) -> None:
    caller = Caller()
    request = chat_request(new_question(), max_tokens=900, ignore_eos=True)
    with stack.stub() as stub, pytest.raises(grpc.RpcError) as caught:
        list(stub.StreamChat(request, metadata=caller.metadata, timeout=2.0))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    trace = settled(receiver, caller, *TREE)

    root = connected(trace, caller)
    assert_request_id(trace, root)
    assert_cut_short(trace, root, "DEADLINE_EXCEEDED")
    assert root.attributes["error.type"] == "DEADLINE_EXCEEDED"


def assert_cut_short(trace: Trace, root: ReceivedSpan, code: str) -> None:
    """Asserts that the calls and the stage in which a request ended tell why, and the stages before it do not."""
    assert root.status == "ERROR"
    for name in (f"gateway:{SUBMIT}", f"scheduler:{SUBMIT}", "scheduler:decode"):
        span = trace.named(name)
        assert (span.status, span.attributes["error.type"]) == ("ERROR", code), f"{span.name} in\n{trace}"
    for name in ("gateway:admit", "gateway:tokenize", "scheduler:queue", "scheduler:prefill"):
        assert trace.named(name).status == "UNSET", str(trace)


@pytest.mark.parametrize("way", ["stream", "http"])
def test_a_refused_request_is_a_trace_too(stack: TracedStack, receiver: OtlpReceiver, way: str) -> None:
    caller, too_long = Caller(), "word " * 20_000
    if way == "stream":
        with stack.stub() as stub, pytest.raises(grpc.RpcError) as caught:
            list(stub.StreamChat(chat_request(too_long), metadata=caller.metadata, timeout=30))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    else:
        with stack.http_stream(caller, too_long, max_tokens=4) as reply:
            assert reply.status_code == 400
    trace = settled(receiver, caller, STREAM if way == "stream" else HTTP)

    root = connected(trace, caller)
    assert root.status == "ERROR"
    assert root.attributes["headrace.request_id"]
    assert {span.service for span in trace.spans} == {"headrace-gateway"}
    if way == "stream":
        assert root.attributes["rpc.response.status_code"] == "INVALID_ARGUMENT"
    else:
        assert root.attributes["http.response.status_code"] == 400
        assert root.attributes["error.type"] == "context_length_exceeded"


def test_a_request_that_loses_its_runner_stays_one_trace(stack: TracedStack, receiver: OtlpReceiver) -> None:
    caller = Caller()
    with stack.stub() as stub:
        request = chat_request(new_question(), max_tokens=60, ignore_eos=True)
        call = stub.StreamChat(request, metadata=caller.metadata, timeout=120)
        next(call)
        old = stack.kill("runner-0")
        last = list(call)[-1]
    stack.until_serving("runner-0", old)
    trace = settled(receiver, caller, STREAM, "runner:runner.decode")

    root = connected(trace, caller)
    assert_request_id(trace, root)
    assert last.usage.completion_tokens == 60
    assert last.usage.recomputed_tokens > 0
    assert root.status == "UNSET"
    first, second = sorted(trace.all_named("scheduler:decode"), key=lambda span: span.start)
    assert (first.status, first.attributes["error.type"]) == ("ERROR", "RUNNER_LOST")
    assert second.status == "UNSET"
    # It waits for its runner, asks the second level once more when that one attaches, and waits for its turn.
    assert len(trace.all_named("scheduler:kv.lookup")) == 2
    assert len(trace.all_named("scheduler:queue")) == 3
    assert len(trace.all_named(f"scheduler:{SUBMIT}")) == 1


def test_what_comes_from_the_second_level_cache_is_part_of_the_trace(
    stack: TracedStack, receiver: OtlpReceiver
) -> None:
    question = new_question()
    ask_unary(stack, Caller(), question)
    until_true(lambda: stack.stored_blocks() > 0)
    old = stack.kill("runner-0")
    stack.until_serving("runner-0", old)
    caller = Caller()
    with stack.stub() as stub:
        answer = stub.Chat(chat_request(question, max_tokens=16), metadata=caller.metadata, timeout=60)
    assert answer.usage.cached_tokens_l2 > 0
    trace = settled(receiver, caller, *TREE, "scheduler:kv.load", "runner:runner.kv.load")

    root = connected(trace, caller)
    assert_request_id(trace, root)
    submit = trace.named(f"scheduler:{SUBMIT}")
    assert trace.parent(trace.named("scheduler:kv.load")) == submit
    # One per value that held a part of the prefix.
    for load in trace.all_named("runner:runner.kv.load"):
        assert trace.parent(load) == submit
        assert load.attributes["headrace.kv.outcome"] == "DONE"
    assert {span.status for span in trace.spans} == {"UNSET"}, str(trace)


def test_probes_polls_and_exports_leave_no_span(stack: TracedStack, receiver: OtlpReceiver) -> None:
    """OBS-8."""
    with grpc.insecure_channel(stack.grpc_address) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert httpx.get(f"{stack.http_url}/health", timeout=5).status_code == 200
    caller = Caller()
    ask_unary(stack, caller, new_question())
    settled(receiver, caller, *TREE)

    unwanted = ("Health", "Reflection", "Attach", "GetLoads", "Export", "/health", "/ready")
    assert not {span.name for span in receiver.spans() if any(word in span.name for word in unwanted)}
    assert {span.service for span in receiver.spans()} == {
        f"headrace-{name}" for name in ("gateway", "scheduler", "runner", "kvstore")
    }


def until_true(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Polls until the condition holds."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.05)
