"""Shows how an instance starts, and then what happens to it: a live table on a terminal, lines elsewhere."""

import contextlib
import json
import shlex
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.cli.shared import data_dir_flag, own_command
from headrace.local.data_dir import DataDir
from headrace.local.first_answer import QUESTION
from headrace.local.news import Failed, News, Notice, Phase, Serving

_STYLES = {"ready": "green", "starting": "cyan", "loading": "cyan", "restarting": "yellow", "gave up": "red"}
# Phases of which everybody should see the detail, such as a dead child's last lines.
_LOUD = ("restarting", "gave up")


class Progress:
    """Receives news and shows them."""

    def __init__(self, data_dir: DataDir, *, is_detached: bool) -> None:
        self._data_dir = data_dir
        self._is_detached = is_detached
        self._console = Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._phases: dict[str, Phase] = {}
        self._since: dict[str, float] = {}
        self._spinner = Spinner("dots")
        self._started = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        self._end_live()

    def tell(self, news: News) -> None:
        """Shows one piece of news; where the terminal has gone, nobody needs to be shown anything."""
        try:
            self._show(news)
        except OSError:
            self._end_live()

    def _show(self, news: News) -> None:
        if isinstance(news, Phase):
            self._show_phase(news)
        elif isinstance(news, Notice):
            self._console.print(f"[yellow]note:[/] {escape(news.text)}")
        elif isinstance(news, Serving):
            self._end_live()
            self._show_banner(news)
        else:
            self._end_live()
            self._show_failure(news)

    def _show_phase(self, news: Phase) -> None:
        if self._phases.get(news.service, Phase("", "")).phase != news.phase:
            self._since[news.service] = time.monotonic()
        self._phases[news.service] = news
        if self._live is None or news.phase in _LOUD:
            detail = f"  {news.detail}" if news.detail else ""
            style = _STYLES.get(news.phase, "default")
            self._console.print(f"[{style}]{news.phase:<9}[/] {news.service}{escape(detail)}")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        for news in self._phases.values():
            mark = Text("✓", "green") if news.phase == "ready" else self._spinner
            seconds = Text(f"{time.monotonic() - self._since[news.service]:.0f} s", "dim")
            is_settled = news.phase == "ready"
            phase = Text(news.phase, _STYLES.get(news.phase, "default"))
            table.add_row(mark, news.service, phase, "" if is_settled else seconds, Text(news.detail, "dim"))
        return table

    def _end_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError):
                live.stop()

    def _show_failure(self, news: Failed) -> None:
        self._errors.print(f"[bold red]error:[/] {escape(news.text)}", soft_wrap=True)

    def _show_banner(self, news: Serving) -> None:
        command, flag = own_command(), data_dir_flag(self._data_dir)
        request = {"model": news.model, "messages": [{"role": "user", "content": QUESTION}]}
        curl = (
            f"curl {news.http_address}/v1/chat/completions -H 'Content-Type: application/json' "
            f"-d {shlex.quote(json.dumps(request))}"
        )
        seconds = time.monotonic() - self._started
        lines = [
            f"[bold green]Headrace serves {escape(news.model)}[/], ready in {seconds:.1f} s",
            "",
            f"  OpenAI HTTP  {news.http_address}/v1",
            f"  gRPC         {news.grpc_address}",
            f"  logs         {escape(news.logs)}",
            "",
        ]
        if news.answer:
            lines += [
                f"  [dim]first answer, in {news.answer_seconds:.2f} s:[/]",
                f"  > {QUESTION}",
                f"  {escape(' '.join(news.answer.split()))}",
                "",
            ]
        lines += ["Try:", f"  {escape(curl)}", f"  {command} chat{flag}", ""]
        lines += [f"Stop it with: {command} down{flag}" if self._is_detached else "Ctrl-C stops it."]
        # Not wrapped at the terminal's width, or a copied command would hold line breaks.
        self._console.print("\n".join(lines), soft_wrap=True)
