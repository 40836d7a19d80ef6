"""Decides whether a transfer may go to Redis at all: one breaker for reaching it, one for storing in it."""

from dataclasses import dataclass

import structlog

from services.common.breaker import Breaker, BreakerSettings, Permit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Admission:
    """The right to one transfer, to be answered with answered, refused_to_store, failed or given_up."""

    reach: Permit
    store: Permit | None


class GateClosed(Exception):
    """Redis is not asked now; the message says why."""


class RedisGate:
    """Keeps transfers from a Redis that is away; from one that is full it keeps only publishes."""

    def __init__(self, settings: BreakerSettings, server: str) -> None:
        self.reach = Breaker(settings)
        self.store = Breaker(settings)
        self._server = server

    def admit(self, *, stores: bool) -> Admission:
        """Admits a transfer, or raises GateClosed."""
        reach = self.reach.permit()
        if reach is None:
            raise GateClosed("Redis does not answer; the breaker is open")
        if not stores:
            return Admission(reach, None)
        store = self.store.permit() or self.store.probe()
        if store is None:
            raise GateClosed("Redis refuses to store; publishes pause")
        return Admission(reach, store)

    def answered(self, admission: Admission) -> None:
        """Notes that Redis did what it was asked."""
        self.reach.succeeded(admission.reach)
        if admission.store is not None and self.store.succeeded(admission.store):
            log.info("Redis stores again; publishes go on", redis=self._server)

    def refused_to_store(self, admission: Admission, error: Exception) -> None:
        """Notes that Redis answered a publish with an error."""
        self.reach.succeeded(admission.reach)
        assert admission.store is not None, "only a publish stores"
        if self.store.failed(admission.store):
            log.warning("Redis refuses to store; publishes pause", redis=self._server, error=str(error))

    def failed(self, admission: Admission, error: Exception) -> None:
        """Notes that Redis could not be reached, or did not answer in time."""
        if admission.store is not None:
            self.store.abandoned(admission.store)
        if self.reach.failed(admission.reach):
            log.warning("Redis does not answer; the L2 cache is left alone", redis=self._server, error=str(error))

    def given_up(self, admission: Admission) -> None:
        """Notes an end that says nothing about Redis."""
        self.reach.abandoned(admission.reach)
        if admission.store is not None:
            self.store.abandoned(admission.store)

    def probe(self) -> Permit | None:
        """Admits the one question that finds out whether Redis is back; None when it is not due."""
        return self.reach.probe()

    def probe_answered(self, permit: Permit) -> None:
        """Notes that Redis is back."""
        if self.reach.succeeded(permit):
            log.info("Redis answers again; the L2 cache is used", redis=self._server)
