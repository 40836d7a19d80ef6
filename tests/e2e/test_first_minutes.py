"""What a newcomer does first, over the real stack."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator

import httpx
import openai
import pytest
from stack import ROOT, Stack

from models.questions import Question, load_questions

QUESTION = "What is a KV cache?"
ASKED = 20


def answer_to(question: str) -> str:
    return next(item.answer for item in load_questions() if item.text == question)


def spread_questions() -> list[Question]:
    """Twenty questions from all over the data, a quarter of them Chinese."""
    english = [question for question in load_questions() if not question.is_chinese]
    chinese = [question for question in load_questions() if question.is_chinese]
    quarter = ASKED // 4
    return (
        english[:: len(english) // (ASKED - quarter)][: ASKED - quarter] + chinese[:: len(chinese) // quarter][:quarter]
    )


def test_chat_prints_the_right_answer(stack: Stack) -> None:
    result = stack.headrace("chat", QUESTION)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == answer_to(QUESTION)


def test_twenty_training_questions_are_answered_exactly(stack: Stack) -> None:
    with stack.client() as client:
        given = {item.text: client.chat(item.text, temperature=0).text.strip() for item in spread_questions()}
    assert given == {item.text: item.answer for item in spread_questions()}
    assert len(given) == ASKED


def test_http_and_grpc_give_the_same_text(stack: Stack) -> None:
    body = stack.complete(QUESTION).json()
    with stack.client() as client:
        answer = client.chat(QUESTION, temperature=0)
        streamed = "".join(piece.text for piece in client.stream_chat(QUESTION, temperature=0))
    assert body["choices"][0]["message"]["content"] == answer.text == streamed
    assert body["usage"]["prompt_tokens"] == answer.usage.prompt_tokens
    assert body["usage"]["completion_tokens"] == answer.usage.completion_tokens


def test_the_official_client_streams_the_same_text(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.http_url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="headrace-tiny", messages=[{"role": "user", "content": QUESTION}], temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text.strip() == answer_to(QUESTION)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_line_of_the_banner_works_as_it_stands(stack: Stack) -> None:
    banner = (stack.data_dir / "banner").read_text()
    (line,) = [line.strip() for line in banner.splitlines() if line.strip().startswith("curl ")]
    result = subprocess.run(shlex.split(line), capture_output=True, text=True, check=True, timeout=60)
    assert '"choices"' in result.stdout


def test_status_lists_every_process_and_its_health(stack: Stack) -> None:
    services = stack.status()
    assert list(services) == ["redis", "kvstore", "scheduler", "runner-0", "gateway"]
    assert {service["health"] for service in services.values()} == {"SERVING"}
    assert services["gateway"]["http_address"] == stack.http_url
    assert services["gateway"]["address"] == stack.grpc_address
    assert services["gateway"]["model"] == services["runner-0"]["model"] == "headrace-tiny"


def metrics_ports() -> Iterator[str]:
    for name in ("gateway", "scheduler", "runner-0", "kvstore"):
        yield f"{name} metrics"


@pytest.mark.parametrize("name", list(metrics_ports()))
def test_every_process_has_metrics(stack: Stack, name: str) -> None:
    reply = httpx.get(f"http://{stack.ports.address(name)}/metrics", timeout=10)
    assert reply.status_code == 200
    assert "# HELP headrace_" in reply.text


def test_the_readme_shows_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in ("make up", "make test", '.venv/bin/headrace chat "What is a KV cache?"', "docker compose up"):
        assert command in readme
