"""headrace chat"""

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared import DataDirOption, data_dir_of, failures_shown, running_instance

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.request_messages import GenerationOptions, Turn


def chat(
    question: Annotated[str | None, typer.Argument(help="Left out: a conversation, until Ctrl-D.")] = None,
    data_dir: DataDirOption = None,
    address: Annotated[str | None, typer.Option(help="A gateway's gRPC address instead of the local instance.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="HEADRACE_API_KEY", help="Sent with the request.")] = None,
    model: Annotated[str | None, typer.Option(help="Which model; default: the gateway's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="The longest answer.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy: the same answer every time.")] = 0.0,
) -> None:
    """Asks the running model a question, or talks with it; exit code 1 where a question was not answered."""
    from headrace.client import Client
    from headrace.request_messages import GenerationOptions

    options = GenerationOptions(temperature=temperature)
    if model is not None:
        options["model"] = model
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    with failures_shown(), Client(address or _local_address(data_dir), api_key) as client:
        if question is not None:
            _answer(client, [{"role": "user", "content": question}], options)
        else:
            _converse(client, options)


def _local_address(data_dir: DataDirOption) -> str:
    from headrace.local.failure import LocalFailure

    gateway = running_instance(data_dir_of(data_dir), "--data-dir or --address").service("gateway")
    if gateway is None:
        raise LocalFailure("the instance is still starting; `headrace status` shows how far it is")
    return gateway.address


def _answer(client: "Client", turns: "list[Turn]", options: "GenerationOptions") -> str:
    """Prints the answer as it comes, and returns it."""
    text = ""
    with client.stream_chat(turns, **options) as stream:
        for piece in stream:
            typer.echo(piece.text, nl=False)
            sys.stdout.flush()
            text += piece.text
    typer.echo()
    return text


def _converse(client: "Client", options: "GenerationOptions") -> None:
    from headrace.errors import HeadraceError
    from headrace.local.failure import LocalFailure

    turns: list[Turn] = []
    has_failed = False
    # What is not UTF-8 becomes an error of the one question that holds it.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    typer.echo("Ctrl-D or an empty line ends the conversation.", err=True)
    while True:
        try:
            question = input("> ")
        except EOFError:
            break
        if not question.strip():
            break
        turns.append({"role": "user", "content": question})
        try:
            with failures_shown():
                turns.append({"role": "assistant", "content": _answer(client, turns, options)})
        except (typer.Exit, HeadraceError, LocalFailure):
            turns.pop()  # what could not be answered does not stand in the way of the next question
            has_failed = True
    if has_failed:
        raise typer.Exit(1)
