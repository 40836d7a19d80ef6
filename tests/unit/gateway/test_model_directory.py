"""Which model a request means, and what is said when nobody can answer it."""

import pytest

from services.common.errors import ModelNotFound, Unavailable
from services.gateway.model_directory import AttachedRunner, ModelDirectory

OURS = "digest"


def runner(name: str = "tiny", version: str = "v1", *, digest: str = OURS, context: int = 2048) -> AttachedRunner:
    return AttachedRunner("runner-0", name, version, "Llama", digest, context, 512, (2,))


def directory(*runners: AttachedRunner) -> ModelDirectory:
    known = ModelDirectory("tiny", OURS)
    known.update(runners)
    return known


def test_the_limit_holds_on_the_smallest_runner() -> None:
    """VAL-4: the effective limit, not the configured one."""
    model = directory(runner(context=2048), runner(context=512)).find("")
    assert (model.context_tokens, model.runners) == (512, 2)


def test_a_request_without_a_version_must_fit_every_version() -> None:
    known = directory(runner(version="v1", context=100), runner(version="v2", context=200))
    assert known.find("tiny").context_tokens == 100
    assert known.find("tiny", "v2").context_tokens == 200


def test_the_default_model_is_listed_first() -> None:
    names = [model.name for model in directory(runner("other"), runner("tiny"), runner("another")).models()]
    assert names == ["tiny", "another", "other"]


def test_a_runner_with_another_tokenizer_is_not_ours() -> None:
    known = directory(runner(digest="foreign"))
    assert known.models() == []
    assert "another tokenizer" in (known.not_ready_reason or "")
    with pytest.raises(Unavailable, match="another tokenizer"):
        known.find("tiny")


def test_an_unknown_model_is_named_with_those_that_exist() -> None:
    with pytest.raises(ModelNotFound, match="'gpt' is not served here; known: tiny") as refusal:
        directory(runner()).find("gpt")
    assert refusal.value.resource == ("model", "gpt")
    with pytest.raises(ModelNotFound, match="gpt"):
        directory().find("gpt")


def test_an_unknown_version_is_named_with_those_that_exist() -> None:
    with pytest.raises(ModelNotFound, match="'v9' of tiny is not served here; known: v1") as refusal:
        directory(runner()).find("", "v9")
    assert refusal.value.resource == ("model", "tiny@v9")


@pytest.mark.parametrize("name", ["", "tiny"])
def test_no_runner_means_try_again(name: str) -> None:
    with pytest.raises(Unavailable, match="no runner is attached") as refusal:
        directory().find(name)
    assert refusal.value.retry_after_seconds


def test_an_unreachable_scheduler_means_try_again_whatever_the_model() -> None:
    known = directory(runner())
    known.forget("the scheduler at x cannot be used")
    assert known.not_ready_reason == "the scheduler at x cannot be used"
    for name in ("tiny", "gpt"):
        with pytest.raises(Unavailable, match="scheduler at x"):
            known.find(name)


def test_a_new_directory_is_not_ready() -> None:
    assert ModelDirectory("tiny", OURS).not_ready_reason


def test_a_model_whose_runners_are_away_for_a_moment_is_found_but_not_ready() -> None:
    known = ModelDirectory("tiny", OURS)
    known.update([], [runner(context=100), runner(digest="foreign")])

    assert known.find("").context_tokens == 100
    assert known.models() == []
    assert known.not_ready_reason == "no runner is attached"
    known.update([])
    with pytest.raises(Unavailable):
        known.find("")


def test_who_is_away_changes_nothing_for_a_model_that_others_serve() -> None:
    known = ModelDirectory("tiny", OURS)
    known.update([runner(context=200)], [runner(context=100), runner("other")])

    assert (known.find("tiny").context_tokens, known.find("tiny").runners) == (200, 1)
    assert known.find("other").name == "other"
