"""Which models can answer, as the attached runners say."""

from collections.abc import Iterable
from dataclasses import dataclass

from services.common.errors import ModelNotFound, NoRunner, Unavailable

RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class AttachedRunner:
    """What matters here of one runner."""

    runner_id: str
    model: str
    version: str
    architecture: str
    tokenizer_digest: str
    context_tokens: int
    """Most prompt plus output tokens of one request: the smaller of the model's context and the runner's memory."""
    vocabulary_size: int
    end_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with every runner that serves it; limits hold on each of them."""

    name: str
    version: str
    architecture: str
    context_tokens: int
    vocabulary_size: int
    end_token_ids: frozenset[int]
    runners: int


class ModelDirectory:
    """Knows the runners whose tokenizer is ours."""

    def __init__(self, default_name: str, tokenizer_digest: str) -> None:
        self._default_name = default_name
        self._tokenizer_digest = tokenizer_digest
        self._runners: tuple[AttachedRunner, ...] = ()
        self._away: tuple[AttachedRunner, ...] = ()
        self._foreign: tuple[AttachedRunner, ...] = ()
        self._outage: str | None = "the scheduler has not answered yet"

    @property
    def default_name(self) -> str:
        """The model of requests that name none."""
        return self._default_name

    @property
    def not_ready_reason(self) -> str | None:
        """Says why no request could be answered; None when one could."""
        if self._outage is not None:
            return self._outage
        if self._runners:
            return None
        if self._foreign:
            names = ", ".join(sorted({runner.runner_id for runner in self._foreign}))
            return f"the attached runners ({names}) have another tokenizer than this gateway"
        return "no runner is attached"

    def update(self, runners: Iterable[AttachedRunner], away: Iterable[AttachedRunner] = ()) -> None:
        """Replaces what is known by a fresh report: who is attached, and for whose return the scheduler waits."""
        known = tuple(runners)
        self._runners = tuple(runner for runner in known if runner.tokenizer_digest == self._tokenizer_digest)
        self._away = tuple(runner for runner in away if runner.tokenizer_digest == self._tokenizer_digest)
        self._foreign = tuple(runner for runner in known if runner.tokenizer_digest != self._tokenizer_digest)
        self._outage = None

    def forget(self, outage: str) -> None:
        """Notes that nothing is known, and why."""
        self._runners = self._away = self._foreign = ()
        self._outage = outage

    def models(self) -> list[ServedModel]:
        """Lists what can answer, the default first."""
        return self._models_of(self._runners)

    def has_served(self, name: str) -> bool:
        """Tells whether a request for this name is for this deployment, even if nobody can answer it now."""
        return name in ("", self._default_name)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Returns the model that a request means; raises ModelNotFound, or Unavailable where it may come back.

        Where all of its runners are away for a moment, the request is the scheduler's: it waits for their return.
        """
        served = {(runner.model, runner.version) for runner in self._runners}
        missed = tuple(runner for runner in self._away if (runner.model, runner.version) not in served)
        models = self._models_of(self._runners + missed)
        if not models and self.has_served(name):
            kind = NoRunner if self._outage is None else Unavailable
            raise kind(
                f"no runner can answer now: {self.not_ready_reason}; try again", retry_after_seconds=RETRY_SECONDS
            )
        wanted = name or (models[0].name if models else self._default_name)
        named = [model for model in models if model.name == wanted]
        if not named and self._outage is not None:
            raise Unavailable(f"{self._outage}; try again", retry_after_seconds=RETRY_SECONDS)
        if not named and wanted == self._default_name:
            raise NoRunner(f"no runner serves {wanted} now; try again", retry_after_seconds=RETRY_SECONDS)
        if not named:
            known = ", ".join(sorted({self._default_name, *(model.name for model in models)}))
            raise ModelNotFound(f"model {wanted!r} is not served here; known: {known}", resource=("model", wanted))
        if version is None:
            return _weakest(named)
        exact = [model for model in named if model.version == version]
        if not exact:
            known = ", ".join(model.version for model in named)
            raise ModelNotFound(
                f"version {version!r} of {wanted} is not served here; known: {known}",
                resource=("model", f"{wanted}@{version}"),
            )
        return exact[0]

    def _models_of(self, runners: tuple[AttachedRunner, ...]) -> list[ServedModel]:
        groups: dict[tuple[str, str], list[AttachedRunner]] = {}
        for runner in runners:
            groups.setdefault((runner.model, runner.version), []).append(runner)
        models = [_served(group) for group in groups.values()]
        return sorted(models, key=lambda model: (model.name != self._default_name, model.name, model.version))


def _served(runners: list[AttachedRunner]) -> ServedModel:
    return ServedModel(
        name=runners[0].model,
        version=runners[0].version,
        architecture=runners[0].architecture,
        context_tokens=min(runner.context_tokens for runner in runners),
        vocabulary_size=min(runner.vocabulary_size for runner in runners),
        end_token_ids=frozenset(token_id for runner in runners for token_id in runner.end_token_ids),
        runners=len(runners),
    )


def _weakest(models: list[ServedModel]) -> ServedModel:
    """A request that names no version may go to any of them, so it must fit each of them."""
    return min(models, key=lambda model: (model.context_tokens, model.vocabulary_size))
