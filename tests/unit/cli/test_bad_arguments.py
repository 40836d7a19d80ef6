"""What a command cannot use ends it with one line and an exit code, never with a traceback."""

import io
from pathlib import Path

import click
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app, print_anything

runner = CliRunner()
NOBODY = ["--address", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--max-tokens", "-5", "hi"], "max_tokens"),
        (["--max-tokens", "99999999999", "hi"], "max_tokens"),
        (["\udcff"], "content"),
        (["--model", "\udcff", "hi"], "model"),
        (["--api-key", "a\nb", "hi"], "api_key"),
        (["--api-key", "é", "hi"], "api_key"),
        (["--address", "\udcff", "hi"], "address"),
    ],
)
def test_chat_with_what_no_request_can_hold_says_so_in_one_line(arguments: list[str], named: str) -> None:
    result = runner.invoke(app, ["chat", *NOBODY, *arguments])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert named in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_byte_that_is_no_text_costs_one_question_of_a_conversation() -> None:
    result = runner.invoke(app, ["chat", *NOBODY], input=b"a\xffb\n\n")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "content: holds what UTF-8 cannot carry" in result.stderr


@pytest.mark.parametrize("command", [["chat", "hi"], ["down"], ["status"], ["restart", "gateway"], ["up"]])
def test_a_data_directory_that_is_a_file_is_named(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = runner.invoke(app, [*command, "--data-dir", str(file)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert f"cannot use the data directory {file}: " in " ".join(result.stderr.split())


def test_a_state_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"\xff")
    result = runner.invoke(app, ["status", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "state.json cannot be read" in result.stderr


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
def test_up_refuses_a_time_that_is_none_before_it_starts_anything(seconds: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    data_dir = tmp_path / "data"
    result = runner.invoke(
        app, ["up", "--model", str(tmp_path / "model"), "--data-dir", str(data_dir), "--ready-seconds", seconds]
    )
    assert result.exit_code == 1
    assert f"--ready-seconds {seconds}: choose more than 0" in result.stderr
    assert not data_dir.exists()


@pytest.mark.parametrize("command", [["status"], ["restart", "gateway"], ["chat", "hi"]])
def test_an_error_names_only_options_that_the_command_has(command: list[str], tmp_path: Path) -> None:
    result = runner.invoke(app, [*command, "--data-dir", str(tmp_path)])
    assert ("--address" in result.stderr) == (command[0] == "chat")


def test_an_answer_that_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
    print_anything()
    click.echo("水")
    assert written.getvalue() == b"\\u6c34\n"
