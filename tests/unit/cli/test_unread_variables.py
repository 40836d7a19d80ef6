"""A setting with a misspelt prefix is pointed out."""

from pathlib import Path

import pytest

from headrace.local.data_dir import DataDir
from headrace.local.plan import UpOptions, plan_stack
from headrace.local.unread_variables import unread_variables


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("HEADRACE_SCHEDULR_RUN_AHEAD", "did you mean HEADRACE_SCHEDULER_RUN_AHEAD?"),
        ("HEADRACE_RUNNERS_THREADS", "did you mean HEADRACE_RUNNER_THREADS?"),
        ("HEADRACE_MODLE", "did you mean HEADRACE_MODEL?"),
        ("HEADRACE_X", "settings begin with HEADRACE_GATEWAY_, "),
        ("HEADRACE_", "settings begin with HEADRACE_GATEWAY_, "),
    ],
)
def test_a_variable_that_nothing_reads_is_named_with_what_was_meant(variable: str, hint: str) -> None:
    [sentence] = unread_variables({variable: "1", "PATH": "/bin"})
    assert sentence.startswith(f"nothing reads {variable} of the environment; {hint}")


def test_what_commands_services_or_compose_read_is_not_pointed_out() -> None:
    """A process refuses an unknown name under its own prefix itself."""
    assert not unread_variables(
        {
            "HEADRACE_MODEL": "m",
            "HEADRACE_DATA_DIR": "/d",
            "HEADRACE_API_KEY": "k",
            "HEADRACE_RUNNER_DEVICE": "cpu",
            "HEADRACE_PROCESS_LOG_LEVEL": "info",
            "HEADRACE_REDIS_PASSWORD": "p",
        }
    )


def test_up_shows_what_nothing_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_GATWAY_LISTEN", "127.0.0.1:1")
    stack = plan_stack(UpOptions(model="org/name", data_dir=str(tmp_path)), DataDir(tmp_path), tmp_path, "token")
    assert any("did you mean HEADRACE_GATEWAY_LISTEN?" in notice for notice in stack.notices)
