"""Which runner a request goes to."""

from collections.abc import Iterable

from services.scheduler.request import Request, RequestSpec
from services.scheduler.runner_identity import RunnerIdentity
from services.scheduler.runner_session import RunnerSession


def is_model_match(spec: RequestSpec, identity: RunnerIdentity) -> bool:
    """Tells whether the runner holds the model that the request names."""
    if spec.model and spec.model != identity.model.name:
        return False
    return not spec.model_version or spec.model_version == identity.model.version


def is_match(spec: RequestSpec, identity: RunnerIdentity) -> bool:
    """Tells whether the runner can serve the request: right model, right tokenizer, large enough."""
    if not is_model_match(spec, identity):
        return False
    if spec.tokenizer_digest and spec.tokenizer_digest != identity.model.tokenizer_digest:
        return False
    is_in_vocabulary = spec.highest_token_id < identity.model.vocabulary_size
    return is_in_vocabulary and spec.total_tokens <= identity.request_tokens_limit


def choose(request: Request, sessions: Iterable[RunnerSession]) -> RunnerSession | None:
    """Picks the runner where the request adds least to what waits; None where none has room now.

    A running sequence weighs as much as one block of prefill, so that a long cached prefix outweighs some company, and
    a short one does not.
    """
    best: tuple[tuple[int, int], RunnerSession] | None = None
    for session in sessions:
        if session.is_closed or session.is_draining or not is_match(request.spec, session.identity):
            continue
        offer = session.offer(request)
        if offer is None:
            continue
        size = session.pool.block_tokens
        uncached = len(request.tokens) - len(offer.matched) * size
        cost = uncached + session.pending_tokens() + size * len(session.running)
        if best is None or (cost, session.epoch) < best[0]:
            best = ((cost, session.epoch), session)
    return None if best is None else best[1]
