"""Instances beside each other, and instances that cannot start."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
from stack import HEADRACE, ROOT, Stack, bare_environment, until

QUESTION = "What is a token?"


def test_a_second_instance_does_not_collide_and_goes_without_a_trace(stack: Stack, second_place: Stack) -> None:
    started = second_place.up("--runners", "2")
    assert started.returncode == 0, started.stdout + started.stderr
    assert {name for name in second_place.status() if name.startswith("runner-")} == {"runner-0", "runner-1"}
    assert len(second_place.loads().runners) == 2
    assert second_place.complete(QUESTION).json()["choices"] == stack.complete(QUESTION).json()["choices"]
    assert len(second_place.processes()) == 7  # the supervisor and six services

    stopped = second_place.down()
    assert stopped.returncode == 0, stopped.stderr
    until(lambda: not second_place.processes(), 5, "the end of every process")
    assert not (second_place.data_dir / "run").exists()
    assert stack.status()["gateway"]["health"] == "SERVING"
    assert second_place.down().returncode == 0


def test_a_second_instance_in_the_same_place_is_refused_with_the_way_out(stack: Stack) -> None:
    log = stack.data_dir / "logs" / "supervisor.log"
    before = log.read_text()
    again = stack.up()
    assert again.returncode == 1
    assert log.read_text().startswith(before)
    assert "a Headrace runs already with the data directory" in again.stderr
    assert "headrace down" in again.stderr


def test_taken_ports_are_named(stack: Stack, second_place: Stack) -> None:
    colliding = Stack(second_place.data_dir, stack.port_base)
    result = colliding.up()
    assert result.returncode == 1
    assert f"{stack.port_base + 1} (gateway)" in result.stderr
    assert "--port-base" in result.stderr


def test_a_model_that_cannot_be_loaded_is_named_with_the_runners_last_lines(
    second_place: Stack, tmp_path: Path
) -> None:
    model = tmp_path / "broken"
    shutil.copytree(ROOT / "models" / "headrace-tiny", model)
    (model / "model.safetensors").write_bytes(b"not weights")
    result = second_place.up("--model", str(model))
    assert result.returncode == 1
    assert "runner-0 died" in result.stderr
    assert "exit code 78" in result.stderr
    assert "cannot start" in result.stderr
    assert "Traceback" not in result.stderr
    assert not second_place.processes()


def test_a_setting_that_does_not_exist_is_named_with_its_neighbour(second_place: Stack) -> None:
    result = subprocess.run(
        [str(HEADRACE), "up", "--detach", "--port-base", str(second_place.port_base)],
        env={**bare_environment(), "HEADRACE_SCHEDULER_RUN_AHED": "1", "HEADRACE_DATA_DIR": str(second_place.data_dir)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert "scheduler died" in result.stderr
    assert "did you mean HEADRACE_SCHEDULER_RUN_AHEAD?" in result.stderr


def test_a_foreground_instance_ends_with_its_terminal(second_place: Stack) -> None:
    command = [
        str(HEADRACE),
        "up",
        "--port-base",
        str(second_place.port_base),
        "--data-dir",
        str(second_place.data_dir),
    ]
    process = subprocess.Popen(
        command, env=bare_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C stops it" in line:
            break
    assert "Headrace serves headrace-tiny" in said
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(60) == 0, said + rest
    assert rest.index("stopped   gateway") < rest.index("stopped   runner-0") < rest.index("stopped   redis")
    assert not second_place.processes()


def test_down_ends_what_a_killed_supervisor_left_behind(second_place: Stack) -> None:
    started = second_place.up()
    assert started.returncode == 0, started.stdout + started.stderr
    state = json.loads((second_place.data_dir / "state.json").read_text())
    psutil.Process(state["supervisor"]["pid"]).kill()
    refused = second_place.up()
    assert refused.returncode == 1
    assert "`headrace down` ends them" in refused.stderr
    stopped = second_place.down()
    assert stopped.returncode == 0
    ended = [stopped.stdout.index(f"ending {name} ") for name in ("gateway", "scheduler", "runner-0", "redis")]
    assert ended == sorted(ended)
    until(lambda: not second_place.processes(), 5, "the end of every process")


def test_a_supervisor_that_was_stopped_still_ends_its_instance(second_place: Stack) -> None:
    started = second_place.up()
    assert started.returncode == 0, started.stdout + started.stderr
    second_place.headrace("restart", "kvstore")
    state = json.loads((second_place.data_dir / "state.json").read_text())
    psutil.Process(state["supervisor"]["pid"]).suspend()
    stopped = second_place.down()
    assert stopped.returncode == 0
    assert "is killed" not in stopped.stdout
    until(lambda: not second_place.processes(), 5, "the end of every process")
