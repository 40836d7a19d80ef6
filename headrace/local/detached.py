"""Runs an instance in a process of its own that outlives the terminal: `headrace up --detach` starts and follows it.

The options are its argument, as JSON, so that `ps` tells instances apart. News go to stdout until the instance serves,
and to stderr, a log file, for ever.
"""

import asyncio
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.instance import run_instance
from headrace.local.log_file import LogFile
from headrace.local.news import Failed, News, Serving, from_line, to_line
from headrace.local.plan import UpOptions
from headrace.local.supervisor import Tell


def start_detached(options: UpOptions, tell: Tell) -> int:
    """Starts the instance, passes its news on until it serves or has failed, and returns the exit code."""
    data_dir = DataDir(Path(options.data_dir))
    data_dir.create()
    with data_dir.locked():  # or the log of an instance that runs already would be moved away
        log = LogFile(data_dir.log_file("supervisor"))
    with log.open() as output:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace.local.detached", json.dumps(dataclasses.asdict(options))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            text=True,
        )
    try:
        return _follow(child, log, tell)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise


def _follow(child: "subprocess.Popen[str]", log: LogFile, tell: Tell) -> int:
    assert child.stdout is not None
    has_failed = False
    for line in child.stdout:
        news = from_line(line)
        tell(news)
        if isinstance(news, Serving):
            return 0
        has_failed = has_failed or isinstance(news, Failed)
    code = child.wait()
    if not has_failed:
        said = "\n".join(f"  {line}" for line in log.tail())
        raise LocalFailure(f"the supervisor ended with exit code {code}; its last lines:\n{said}")
    return 1


class _Teller:
    """Writes news to whoever started us until the instance serves, and to the log always."""

    def __init__(self) -> None:
        self._is_followed = True

    def __call__(self, news: News) -> None:
        line = to_line(news)
        sys.stderr.write(f'{{"ts": {time.time():.3f}, {line[1:]}\n')
        sys.stderr.flush()
        if self._is_followed:
            self._pass_on(line)
        if isinstance(news, Serving):
            self._is_followed = False
            sys.stdout.close()

    def _pass_on(self, line: str) -> None:
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except BrokenPipeError:  # the terminal has gone; the instance goes on
            self._is_followed = False


def main() -> None:
    """Reads the options and runs the instance."""
    options = UpOptions(**json.loads(sys.argv[1]))
    sys.exit(asyncio.run(run_instance(options, _Teller())))


if __name__ == "__main__":
    main()
