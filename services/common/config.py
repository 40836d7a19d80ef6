"""Reads a service's configuration from environment variables, once, into a frozen dataclass."""

import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Mapping


class ConfigError(Exception):
    """A variable that cannot be used: the message names it, its value and what would be right."""


T = typing.TypeVar("T")

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}

# Read by every process beside its own variables.
SHARED_PREFIX = "HEADRACE_PROCESS_"


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessConfig:
    """What every process is told the same way: HEADRACE_PROCESS_*."""

    log_format: str = "auto"
    """json, console, or auto: console on a terminal."""
    log_level: str = "info"
    """debug, info, warning or error."""
    cluster_token: str | None = None
    """Shared secret of the internal calls; without it they are open to whoever reaches the port."""
    allow_insecure_bind: bool = False
    """Permits a non-loopback address without authentication, for a network that is private by other means."""
    reflection: bool = True
    """Serves gRPC reflection."""
    drain_seconds: float = 30.0
    """How long running work may take to finish after SIGTERM."""


def config_from_env(config_type: type[T], prefix: str, environ: Mapping[str, str] | None = None) -> T:
    """Builds config_type from the variables with this prefix; raises ConfigError on an unknown or malformed one."""
    values = os.environ if environ is None else environ
    hints = typing.get_type_hints(config_type)
    names = {prefix + name.upper(): name for name in hints}
    arguments = {}
    for variable, text in values.items():
        if not variable.startswith(prefix):
            continue
        if variable not in names:
            raise ConfigError(_unknown(variable, list(names)))
        arguments[names[variable]] = _parse(variable, text, hints[names[variable]])
    try:
        return config_type(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{prefix}*: {error}") from error


def _unknown(variable: str, known: list[str]) -> str:
    near = difflib.get_close_matches(variable, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    return f"{variable} is not a setting; {hint}"


def _parse(variable: str, text: str, hint: object) -> object:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = next(option for option in typing.get_args(hint) if option is not type(None))
        return None if text == "" else _parse(variable, text, inner)
    if typing.get_origin(hint) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is bool:
        return _parse_bool(variable, text)
    if hint in (int, float):
        return _parse_number(variable, text, hint)
    return text


def _parse_bool(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ConfigError(f"{variable}={text!r} is not a switch; use true or false")


def _parse_number(variable: str, text: str, kind: typing.Any) -> object:
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text!r} is not {'a whole number' if kind is int else 'a number'}") from error
