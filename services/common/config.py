"""Reads a service's configuration from environment variables, once, into a frozen dataclass."""

import dataclasses
import difflib
import math
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

    log_format: typing.Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON elsewhere."""
    log_level: typing.Literal["debug", "info", "warning", "error"] = "info"
    """Lines below it are not written."""
    cluster_token: str | None = dataclasses.field(default=None, repr=False)
    """Shared secret of the internal calls; without it they are open to whoever reaches the port."""
    allow_insecure_bind: bool = False
    """Permits a non-loopback address without authentication, for a network that is private by other means."""
    reflection: bool = True
    """Serves gRPC reflection."""
    drain_seconds: float = 30.0
    """How long running work may take to finish after SIGTERM."""

    def __post_init__(self) -> None:
        if self.drain_seconds < 0:
            raise ValueError(f"drain_seconds is {self.drain_seconds}; use 0 or more")
        if self.cluster_token is not None and not (self.cluster_token.isascii() and self.cluster_token.isprintable()):
            raise ValueError("cluster_token holds characters that call metadata cannot carry; use printable ASCII")


def config_from_env(config_type: type[T], prefix: str, environ: Mapping[str, str] | None = None) -> T:
    """Builds config_type from the variables with this prefix; raises ConfigError on an unknown or malformed one."""
    values = os.environ if environ is None else environ
    hints = typing.get_type_hints(config_type)
    fields = {prefix + field.name.upper(): field for field in dataclasses.fields(config_type)}  # type: ignore[arg-type]
    arguments = {}
    for variable, text in values.items():
        if not variable.startswith(prefix):
            continue
        if variable not in fields:
            raise ConfigError(_unknown(variable, list(fields)))
        name = fields[variable].name
        arguments[name] = _parse(variable, text, hints[name])
    for variable, field in fields.items():
        if field.name not in arguments and _is_required(field):
            raise ConfigError(f"{variable} is not set; there is no default for it")
    try:
        return config_type(**arguments)
    except ValueError as error:
        raise ConfigError(f"{prefix}*: {error}") from error


def _is_required(field: "dataclasses.Field[typing.Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unknown(variable: str, known: list[str]) -> str:
    near = difflib.get_close_matches(variable, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    return f"{variable} is not a setting; {hint}"


def _parse(variable: str, text: str, hint: object) -> object:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = next(option for option in options if option is not type(None))
        return None if text == "" else _parse(variable, text, inner)
    if origin is tuple:
        return tuple(_parse(variable, part.strip(), options[0]) for part in text.split(",") if part.strip())
    if origin is typing.Literal:
        return _parse_choice(variable, text, options)
    if hint is bool:
        return _parse_bool(variable, text)
    if hint in (int, float):
        return _parse_number(variable, text, hint)
    return text


def _parse_choice(variable: str, text: str, choices: tuple[str, ...]) -> str:
    word = text.strip().lower()
    if word in choices:
        return word
    raise ConfigError(f"{variable}={text!r} is not a choice; use {', '.join(choices[:-1])} or {choices[-1]}")


def _parse_bool(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ConfigError(f"{variable}={text!r} is not a switch; use true or false")


def _parse_number(variable: str, text: str, kind: typing.Any) -> object:
    try:
        number = kind(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text!r} is not {'a whole number' if kind is int else 'a number'}") from error
    if kind is float and not math.isfinite(number):
        raise ConfigError(f"{variable}={text!r} is not a finite number")
    return number
