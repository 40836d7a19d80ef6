"""Variables of the environment that look like settings and that no process reads."""

import difflib
from collections.abc import Mapping

# What follows one of these is checked by the process that reads it.
_OWNERS = ("GATEWAY", "SCHEDULER", "RUNNER", "KVSTORE", "PROCESS")
_OF_COMMANDS = ("API_KEY", "DATA_DIR", "MODEL")
# May stand in the same .env file.
_OF_COMPOSE = ("BASE_IMAGE", "CLUSTER_TOKEN", "MODELS_DIR", "REDIS_IMAGE", "REDIS_PASSWORD")

_PREFIX = "HEADRACE_"


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for every HEADRACE_* variable that would be ignored."""
    names = [variable.removeprefix(_PREFIX) for variable in sorted(environment) if variable.startswith(_PREFIX)]
    return [f"nothing reads {_PREFIX}{name} of the environment; {_hint(name)}" for name in names if _is_unread(name)]


def _is_unread(name: str) -> bool:
    return name not in _OF_COMMANDS + _OF_COMPOSE and not name.startswith(tuple(f"{owner}_" for owner in _OWNERS))


def _hint(name: str) -> str:
    word, _, setting = name.partition("_")
    owners = difflib.get_close_matches(word, _OWNERS, n=1) if setting else []
    near = [f"{owners[0]}_{setting}"] if owners else difflib.get_close_matches(name, _OF_COMMANDS, n=1)
    if near:
        return f"did you mean {_PREFIX}{near[0]}?"
    return f"settings begin with {', '.join(f'{_PREFIX}{owner}_' for owner in _OWNERS)}"
