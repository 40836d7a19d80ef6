"""What a log line holds; each test logs from a process of its own, because a process sets up its logs once."""

import json
import re
import subprocess
import sys

import pytest

SETUP = """
import logging, structlog, sys
from opentelemetry.sdk.trace import TracerProvider
from services.common.logs import configure_logs
configure_logs("mill", {form!r}, {level!r})
log = structlog.get_logger()
tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
"""


def logged(body: str, form: str = "json", level: str = "info", **options) -> str:
    """Runs a few lines and returns what they wrote to standard output."""
    script = SETUP.format(form=form, level=level) + body
    options.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def line(body: str, **options) -> dict[str, object]:
    (text,) = logged(body, **options).splitlines()
    return json.loads(text)


def test_a_line_says_when_what_and_where():
    found = line("log.info('ready', port=1)")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found.pop("ts"))
    assert found == {"event": "ready", "level": "info", "service": "mill", "port": 1}


def test_a_line_within_a_span_carries_its_trace():
    found = line("""
with tracer.start_as_current_span("s") as span:
    log.info("x", expected=[format(span.get_span_context().trace_id, "032x"),
                            format(span.get_span_context().span_id, "016x")])
""")

    assert [found["trace_id"], found["span_id"]] == found["expected"]


def test_a_trace_that_the_caller_names_stays():
    found = line("""
with tracer.start_as_current_span("s"):
    log.info("x", trace_id="ab")
""")

    assert found["trace_id"] == "ab"
    assert "span_id" not in found


def test_a_bound_request_id_is_on_every_line():
    body = "structlog.contextvars.bind_contextvars(request_id='r-1'); log.info('a'); log.info('b')"

    assert [json.loads(text)["request_id"] for text in logged(body).splitlines()] == ["r-1", "r-1"]


def test_a_stage_carries_the_measures_of_the_process():
    found = line("log.info('done', stage='PREFILL')")

    assert (found["batch_size"], found["gpu_util"]) == (None, None)
    assert found["mem_used"] > 1_000_000


def test_measures_that_are_given_stay():
    found = line("log.info('done', stage='STEP', batch_size=3, gpu_util=0.5, mem_used=7)")

    assert (found["batch_size"], found["gpu_util"], found["mem_used"]) == (3, 0.5, 7)


def test_lines_without_a_stage_carry_no_measures():
    assert "mem_used" not in line("log.info('x')")


def test_the_level_filters():
    body = "log.debug('a'); log.info('b'); log.warning('c'); log.error('d')"

    events = [json.loads(text)["event"] for text in logged(body, level="warning").splitlines()]
    assert events == ["c", "d"]
    assert len(logged(body, level="debug").splitlines()) == 4


def test_libraries_log_in_the_same_form():
    found = line("logging.getLogger('grpc').warning('odd %s', 'ping'); logging.getLogger('x').info('not this')")

    assert (found["event"], found["level"], found["service"]) == ("odd ping", "warning", "mill")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variables(form):
    """They hold prompts and keys."""
    text = logged(
        "def f(prompt):\n    raise KeyError(1)\ntry:\n    f('s3' + 'cret')\nexcept KeyError:\n    log.exception('bug')",
        form=form,
    )

    assert "KeyError" in text
    assert "s3cret" not in text


def test_an_exception_is_one_line_of_json():
    found = line("try:\n    1/0\nexcept ZeroDivisionError:\n    log.exception('bug')")

    assert found["event"] == "bug"
    assert "ZeroDivisionError" in found["exception"]


@pytest.mark.parametrize("value", ["'\\n'", "'\\ud800'", "b'\\xff'", "object()", "{1: 2}"])
def test_any_value_gives_one_line_of_json(value):
    assert line(f"log.info('x', value={value})")["event"] == "x"


def test_the_console_form_is_for_people():
    text = logged("log.info('prefill done', stage='PREFILL', tokens=5)", form="console")

    assert re.match(r"\d\d:\d\d:\d\d \[info +\] prefill done +stage=PREFILL tokens=5 service=mill", text)
    assert "batch_size" not in text
    assert "\x1b" not in text


def test_auto_is_json_where_there_is_no_terminal():
    assert line("log.info('x')", form="auto")["event"] == "x"


def test_a_full_disk_costs_lines_but_nothing_else():
    with open("/dev/full", "w") as full:
        logged("for _ in range(9): log.info('x' * 9_000); logging.getLogger('y').warning('y' * 9_000)", stdout=full)
