"""A request can be followed through the logs of all processes alone."""

from datetime import datetime

import pytest
from otlp_receiver import OtlpReceiver
from traced_stack import Caller, TracedStack, chat_request, new_question, settled

STAGES = {
    "gateway": {"ADMIT", "TOKENIZE", "DETOKENIZE", "DONE"},
    "scheduler": {"QUEUE", "KV_LOOKUP", "PREFILL", "DECODE", "DONE"},
    "kvstore": {"KV_LOOKUP"},
    "runner-0": {"PREFILL", "DECODE"},
}


@pytest.fixture(scope="module")
def lines(stack: TracedStack, receiver: OtlpReceiver):
    """The stage lines of one finished request, by process."""
    caller = Caller()
    with stack.stub() as stub:
        answer = stub.Chat(chat_request(new_question(), max_tokens=16), metadata=caller.metadata, timeout=60)
    # Lines are written where spans end.
    settled(receiver, caller, "runner.decode", "headrace.v1.InferenceService/Chat")
    found = stack.log_lines(caller.trace_id)
    return answer.request_id, {name: [line for line in of if "stage" in line] for name, of in found.items()}


def test_every_process_writes_its_stages_once(lines):
    _, found = lines
    for process, stages in STAGES.items():
        written = [line["stage"] for line in found[process] if not line["stage"].startswith("KV_PUBLISH")]
        assert sorted(written) == sorted(stages), process


def test_all_lines_name_the_request(lines):
    request_id, found = lines
    for process, of in found.items():
        assert {line.get("request_id") for line in of if not line["stage"].startswith("KV_PUBLISH")} == {request_id}, (
            process
        )


def test_a_stage_line_holds_its_time_and_the_state_of_its_process(lines):
    _, found = lines
    for of in found.values():
        for line in of:
            assert {"ts", "level", "service", "event", "batch_size", "gpu_util", "mem_used", "duration_ms"} <= set(line)
            assert line["duration_ms"] >= 0
            assert line["mem_used"] > 0
            assert datetime.fromisoformat(line["ts"].replace("Z", "+00:00")).tzinfo is not None


def test_the_runners_lines_tell_batch_and_load(lines):
    _, found = lines
    for line in found["runner-0"]:
        assert line["batch_size"] >= 1
        assert line["gpu_util"] is None or 0 <= line["gpu_util"] <= 1


def test_the_last_line_tells_how_it_ended(lines):
    _, found = lines
    done = next(line for line in found["gateway"] if line["stage"] == "DONE")

    assert (done["code"], done["error_reason"]) == ("OK", None)
    assert done["finish_reason"] in {"stop", "length"}
    assert done["prompt_tokens"] > 16
    assert 0 < done["completion_tokens"] <= 16
    assert 0 < done["time_to_first_token_ms"] <= done["duration_ms"]


def test_neither_prompt_nor_answer_is_written(lines, stack):
    for path in (stack.data_dir / "logs").glob("*.log"):
        assert "about mills" not in path.read_text()
