"""The client SDK against a server in this process."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

import headrace
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_pb2 as inf
from headrace.v1 import inference_pb2_grpc


class Inference(inference_pb2_grpc.InferenceServiceServicer):
    """Keeps what it was asked, and answers or refuses."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.metadata: dict[str, Any] = {}
        self.stream_ended = threading.Event()
        self.refusal: status_pb2.Status | None = None

    def Chat(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        self.metadata = dict(context.invocation_metadata())
        if self.refusal is not None:
            context.abort_with_status(rpc_status.to_status(self.refusal))
        usage = gen.Usage(prompt_tokens=5, completion_tokens=2, cached_tokens_l1=1, cached_tokens_l2=3)
        choice = inf.Choice(text="水", finish_reason=gen.FINISH_REASON_LENGTH)
        return inf.GenerateResponse(request_id="r", model="m", choices=[choice], usage=usage)

    def Generate(self, request: Any, context: Any) -> Any:
        return self.Chat(request, context)

    def StreamChat(self, request: Any, context: Any) -> Iterator[Any]:
        context.add_callback(self.stream_ended.set)
        yield inf.Chunk(request_id="r", sequence=0, text="a")
        if request.options.request_id == "endless":
            self.stream_ended.wait(30)
        yield inf.Chunk(request_id="r", sequence=1, text="b", finish_reason=gen.FINISH_REASON_STOP, usage=gen.Usage())

    def Cancel(self, request: Any, context: Any) -> Any:
        return inf.CancelResponse(was_running=request.request_id == "known")

    def ListModels(self, request: Any, context: Any) -> Any:
        return inf.ListModelsResponse(models=[inf.Model(name="m", context_length=64, runners=2, is_default=True)])


@pytest.fixture
def inference() -> Inference:
    return Inference()


@pytest.fixture
def client(inference: Inference) -> Iterator[headrace.Client]:
    server = grpc.server(ThreadPoolExecutor(4))
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(inference, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with headrace.Client(f"127.0.0.1:{port}", api_key="key") as connected:
        yield connected
    server.stop(0)


def test_an_answer_has_text_reason_and_usage(client: headrace.Client) -> None:
    answer = client.chat("hello")
    assert (answer.text, answer.finish_reason, answer.request_id, answer.model) == ("水", "length", "r", "m")
    assert answer.usage == headrace.Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=4, recomputed_tokens=0)


def test_options_that_are_not_given_stay_absent(client: headrace.Client, inference: Inference) -> None:
    client.chat([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], temperature=0, seed=0)
    request = inference.asked[0]
    assert request.sampling.HasField("temperature")
    assert request.sampling.HasField("seed")
    assert not request.sampling.HasField("top_p")
    assert not request.stop.HasField("max_tokens")
    assert [message.role for message in request.conversation.messages] == [inf.ROLE_SYSTEM, inf.ROLE_USER]


def test_a_prompt_is_text_or_token_ids(client: headrace.Client, inference: Inference) -> None:
    client.generate("text", max_tokens=3, stop=["x"])
    client.generate([1, 2])
    assert inference.asked[0].prompt.text == "text"
    assert list(inference.asked[0].stop.stop) == ["x"]
    assert list(inference.asked[1].prompt.token_ids.ids) == [1, 2]


def test_the_key_travels_as_a_bearer_token(client: headrace.Client, inference: Inference) -> None:
    client.chat("hello")
    assert inference.metadata["authorization"] == "Bearer key"


def test_an_unknown_option_is_refused_here(client: headrace.Client) -> None:
    with pytest.raises(TypeError, match="unknown option temprature; known: model, "):
        client.chat("hello", temprature=1)  # type: ignore[call-arg]


def test_a_stream_gives_pieces_and_ends_with_reason_and_usage(client: headrace.Client) -> None:
    pieces = list(client.stream_chat("hello"))
    assert "".join(piece.text for piece in pieces) == "ab"
    assert [piece.sequence for piece in pieces] == [0, 1]
    assert [piece.finish_reason for piece in pieces] == [None, "stop"]
    assert pieces[0].usage is None
    assert pieces[1].usage is not None


def test_leaving_a_stream_ends_the_call_on_the_server(client: headrace.Client, inference: Inference) -> None:
    with client.stream_chat("hello", request_id="endless") as stream:
        assert next(stream).text == "a"
    assert inference.stream_ended.wait(5)


def test_models_and_cancel(client: headrace.Client) -> None:
    assert [(model.name, model.runners, model.is_default) for model in client.models()] == [("m", 2, True)]
    assert client.cancel("known")
    assert not client.cancel("unknown")


def refusal(code: grpc.StatusCode, *details: Any) -> status_pb2.Status:
    packed = []
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        packed.append(item)
    return status_pb2.Status(code=code.value[0], message="temperature: too hot", details=packed)


def test_an_error_has_code_reason_and_fields(client: headrace.Client, inference: Inference) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="temperature", description="too hot")
    inference.refusal = refusal(
        grpc.StatusCode.INVALID_ARGUMENT,
        error_details_pb2.ErrorInfo(reason="TOO_HOT", domain="headrace"),
        error_details_pb2.BadRequest(field_violations=[violation]),
    )
    with pytest.raises(headrace.InvalidRequest) as failure:
        client.chat("hello")
    error = failure.value
    assert (error.code, error.reason, error.message) == ("INVALID_ARGUMENT", "TOO_HOT", "temperature: too hot")
    assert error.violations == (headrace.FieldViolation("temperature", "too hot"),)


def test_an_overload_says_when_to_come_back(client: headrace.Client, inference: Inference) -> None:
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)
    inference.refusal = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, retry)
    with pytest.raises(headrace.Overloaded) as failure:
        client.chat("hello")
    assert failure.value.retry_after_seconds == 1.5
    assert failure.value.reason == "RESOURCE_EXHAUSTED"


def test_nobody_at_the_address_is_unavailable() -> None:
    with headrace.Client("127.0.0.1:1") as nobody, pytest.raises(headrace.Unavailable):
        nobody.chat("hello", timeout_seconds=5)
