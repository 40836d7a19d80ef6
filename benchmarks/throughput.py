"""Output tokens per second of the whole stack, beside the same scheduler and runner code joined in one process.

python -m benchmarks.throughput --model DIR
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.load import Workload, run_load
from benchmarks.results_file import write_result

MARK = "COLOCATED "


class JoinedArm:
    """The colocated process, run by run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        options = ["--model", arguments.model, "--concurrency", str(arguments.concurrency)]
        options += ["--prompt-tokens", str(arguments.prompt_tokens), "--output-tokens", str(arguments.output_tokens)]
        command = [sys.executable, "-m", "benchmarks.colocated", *options]
        # As services/runner/__main__.py sets it before torch is imported.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.vocabulary_size = int(self._answer()["vocabulary_size"])

    def run(self) -> float:
        """Runs once; returns output tokens per second."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return float(self._answer()["tokens_per_second"])

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return answer
        raise RuntimeError(f"the colocated process ended with {self._process.wait()}")


def headrace(*arguments: str) -> None:
    """Runs a command of the CLI."""
    subprocess.run([sys.executable, "-m", "headrace.cli.main", *arguments], check=True)


async def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Warms both arms up once and then alternates between them."""
    joined = JoinedArm(arguments)
    sizes = (arguments.concurrency, arguments.prompt_tokens, arguments.output_tokens, joined.vocabulary_size)
    workload = Workload(*sizes)
    runs: dict[str, list[float]] = {"whole stack, gRPC": [], "joined in one process": []}
    for repetition in range(arguments.repetitions + 1):
        stack = (await run_load(f"127.0.0.1:{arguments.port_base + 1}", workload)).tokens_per_second
        single = joined.run()
        print(f"{repetition}: stack {stack:.1f}, joined {single:.1f} out tok/s", flush=True)
        if repetition > 0:
            runs["whole stack, gRPC"].append(stack)
            runs["joined in one process"].append(single)
    joined.close()
    return runs


def main() -> None:
    """Measures and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="for example from headrace make-model --shape llama-135m")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--port-base", type=int, default=27000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        instance = ["--data-dir", folder]
        headrace("up", "--detach", "--model", arguments.model, "--port-base", str(arguments.port_base), *instance)
        try:
            runs = asyncio.run(measure(arguments))
        finally:
            headrace("down", *instance)
    stack, joined = (statistics.median(values) for values in runs.values())
    path = write_result(
        "throughput",
        runs,
        "output tokens per second, prefill included",
        workload={
            "model": Path(arguments.model).name,
            "concurrent_requests": arguments.concurrency,
            "prompt_tokens": arguments.prompt_tokens,
            "output_tokens": arguments.output_tokens,
            "sampling": "greedy, EOS ignored, prefix caches bypassed",
        },
        ratio=round(stack / joined, 3),
    )
    print(f"stack / joined = {stack / joined:.3f}; written to {path}")


if __name__ == "__main__":
    main()
