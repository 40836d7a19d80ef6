"""What `headrace up` shows."""

import io
from pathlib import Path

import pytest

from headrace.cli.progress import Progress
from headrace.local.data_dir import DataDir
from headrace.local.news import Failed, News, Notice, Phase, Serving, from_line, to_line

SERVING = Serving("a-model", "127.0.0.1:50051", "http://127.0.0.1:8080", "/logs", "It's a [cache].", 0.25)


class GoneTerminal(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("news", [Phase("gateway", "ready", "x"), Notice("n"), SERVING, Failed("because")])
def test_news_survive_the_way_to_another_process(news: News) -> None:
    assert from_line(to_line(news)) == news


@pytest.mark.parametrize("news", [Phase("gateway", "ready"), SERVING, Failed("because")])
def test_a_closed_terminal_stops_nothing(news: News, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance is stopped when its terminal goes, and telling about it must not get in the way."""
    monkeypatch.setattr("sys.stdout", GoneTerminal())
    monkeypatch.setattr("sys.stderr", GoneTerminal())
    with Progress(DataDir(tmp_path), is_detached=False) as progress:
        progress.tell(news)


def test_the_banner_has_addresses_and_lines_to_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(DataDir(tmp_path), is_detached=True) as progress:
        progress.tell(SERVING)
    shown = capsys.readouterr().out
    assert "http://127.0.0.1:8080/v1" in shown
    assert "It's a [cache]." in shown
    (curl,) = [line.strip() for line in shown.splitlines() if line.strip().startswith("curl ")]
    assert '"model": "a-model"' in curl
    assert f"down --data-dir {tmp_path}" in shown


def test_a_dead_childs_last_words_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(DataDir(tmp_path), is_detached=False) as progress:
        progress.tell(Phase("runner-0", "restarting", "in 0.25 s: runner-0 died; its last lines:\n  [boom]"))
        progress.tell(Failed("gave up"))
    captured = capsys.readouterr()
    assert "[boom]" in captured.out
    assert "error: gave up" in captured.err
