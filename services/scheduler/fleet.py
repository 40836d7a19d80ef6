"""The attached runners: who came, who left, and what becomes of the requests of a lost one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from services.common.errors import NoRunner, ServiceError, Unavailable
from services.scheduler.block_keys import Digest, sha256
from services.scheduler.config import SchedulerConfig
from services.scheduler.ending import end_request
from services.scheduler.placement import choose, is_match
from services.scheduler.request import FinishReason, Phase, Request, RequestSpec
from services.scheduler.residency import Residency
from services.scheduler.runner_identity import RunnerIdentity
from services.scheduler.runner_session import RunnerSession
from services.scheduler.stage_clock import Stage
from services.scheduler.waiting_queue import WaitingQueue

log = structlog.get_logger()

MOST_LOST_RUNNERS = 2
# A tick that comes so late says that this process stood still, and its runners' messages are still to be read.
PAUSE_SECONDS = 0.5


class RunnersLost(Unavailable):
    """The request was on too many runners that went away; it may be what ends them."""

    reason = "RUNNERS_LOST"


@dataclass(frozen=True, slots=True)
class Departure:
    """A runner that was here, and until when."""

    identity: RunnerIdentity
    at: float


class Fleet:
    """All sessions of one scheduler, and the queue that feeds them."""

    def __init__(
        self,
        config: SchedulerConfig,
        queue: WaitingQueue,
        on_end: Callable[[Request], None],
        now: float,
        digest: Digest = sha256,
    ) -> None:
        self._config = config
        self._queue = queue
        self._on_end = on_end
        self._digest = digest
        self._epochs = itertools.count(1)
        self._started = now
        self._departures: dict[str, Departure] = {}
        self._last_tick: float | None = None
        self.sessions: list[RunnerSession] = []

    def attach(self, identity: RunnerIdentity, now: float) -> RunnerSession:
        """Admits a runner under a new epoch and fences an older attachment of the same runner."""
        for session in list(self.sessions):
            if session.identity.runner_id == identity.runner_id:
                self.detach(session, "the same runner attached again", now)
        session = RunnerSession(identity, next(self._epochs), self._config.run_ahead, self._digest)
        session.last_heard = now
        self._departures.pop(identity.runner_id, None)
        self.sessions = [*self.sessions, session]
        log.info("runner attached", runner_id=identity.runner_id, epoch=session.epoch, model=identity.model.name)
        self.wake()
        return session

    def detach(self, session: RunnerSession, cause: str, now: float) -> None:
        """Forgets a runner; its requests go back to the queue with the tokens that they have."""
        session.close(cause)
        if session not in self.sessions:
            return
        self.sessions = [other for other in self.sessions if other is not session]
        runner_id = session.identity.runner_id
        self._departures[runner_id] = Departure(session.identity, now)
        note, event = (log.info, "runner left") if session.is_draining else (log.warning, "runner lost")
        note(event, runner_id=runner_id, epoch=session.epoch, cause=cause, requests=len(session.running))
        for residency in list(session.running):
            self._take_back(residency, cause, now)
        self.wake()

    def drain(self, session: RunnerSession) -> None:
        """Hears that a runner is about to leave: it gets nothing new, and others may take what waited for it."""
        log.info("runner is draining", runner_id=session.identity.runner_id, requests=len(session.running))
        session.drain()
        self.wake()

    def _take_back(self, residency: Residency, cause: str, now: float) -> None:
        """Queues a request of a departed runner again; one that has seen too many runners break is not tried again."""
        request, session = residency.request, residency.session
        session.release(residency)
        # Who announced its departure did not break, least of all because of the request.
        request.lost_runners += not session.is_draining
        if request.lost_runners >= MOST_LOST_RUNNERS:
            error = RunnersLost(
                f"this request lost {request.lost_runners} runners, last {session.identity.runner_id} ({cause}); "
                "it is not tried again, in case it is the cause"
            )
            self._end_with(request, error, now)
            return
        request.phase = Phase.QUEUED
        request.clock.enter(Stage.QUEUE, now, "RUNNER_LEFT" if session.is_draining else "RUNNER_LOST")
        self._queue.add(request)

    def wake(self) -> None:
        """Lets every runner's loop look at the queue."""
        for session in self.sessions:
            session.news.set()

    def wake_others(self, session: RunnerSession) -> None:
        """Lets every other runner's loop look at the queue."""
        for other in self.sessions:
            if other is not session:
                other.news.set()

    def is_elsewhere(self, session: RunnerSession, request: Request) -> bool:
        """Tells whether another runner is the better place and has room."""
        if len(self.sessions) == 1:
            return False
        best = choose(request, self.sessions)
        return best is not None and best is not session

    def identities(self, now: float) -> list[RunnerIdentity]:
        """Lists the runners that are here, and those that may come back in time."""
        return [*(session.identity for session in self.sessions), *self.away(now)]

    def away(self, now: float) -> list[RunnerIdentity]:
        """Lists the runners that left a moment ago: requests wait for their return."""
        wait = self._config.runner_wait_seconds
        return [item.identity for item in self._departures.values() if now - item.at < wait]

    def absent_since(self, spec: RequestSpec) -> float | None:
        """Returns since when no attached runner can serve the request; None while one can."""
        if any(is_match(spec, session.identity) for session in self.sessions):
            return None
        left = [item.at for item in self._departures.values() if is_match(spec, item.identity)]
        return max(left, default=self._started)

    def tick(self, now: float) -> None:
        """Acts on what did not happen in time: heartbeats, loads, a runner's return; to be called all the time."""
        pause = now - self._last_tick if self._last_tick is not None else 0.0
        self._last_tick = now
        if pause > PAUSE_SECONDS:
            log.warning("the scheduler stood still", duration_ms=round(pause * 1000))
            self._forgive(pause, now)
        silence = self._config.heartbeat_seconds * self._config.missed_heartbeats
        for session in list(self.sessions):
            if now - session.last_heard > silence:
                self.detach(session, f"no heartbeat for {silence:g} s", now)
            else:
                self._expire_loads(session, now)
        self._expire_waiting(now)
        self._wake_idle()
        wait = self._config.runner_wait_seconds
        self._departures = {key: item for key, item in self._departures.items() if now - item.at < 2 * wait}

    def _forgive(self, pause: float, now: float) -> None:
        """Moves every time limit by a pause in which nobody could be heard."""
        for session in self.sessions:
            session.last_heard = min(session.last_heard + pause, now)
            for residency in session.running:
                if residency.load is not None and residency.load.give_up_at is not None:
                    residency.load.give_up_at += pause
        self._started = min(self._started + pause, now)
        self._departures = {
            key: Departure(item.identity, min(item.at + pause, now)) for key, item in self._departures.items()
        }

    def _expire_loads(self, session: RunnerSession, now: float) -> None:
        for residency in list(session.running):
            give_up_at = residency.load.give_up_at if residency.load is not None else None
            if give_up_at is None or now < give_up_at:
                continue
            # The transfer may still write into its blocks: it keeps them, and the request starts over in others.
            request = residency.request
            session.release(residency)
            request.stored = None
            request.phase = Phase.QUEUED
            request.clock.enter(Stage.QUEUE, now, "LOAD_TIMEOUT")
            self._queue.add(request)
            self.wake()

    def _wake_idle(self) -> None:
        """Lets runners without work look at the queue: which one is best changes with every step of the others."""
        if self._queue:
            for session in self.sessions:
                if not session.in_flight:
                    session.news.set()

    def _expire_waiting(self, now: float) -> None:
        wait = self._config.runner_wait_seconds
        for request in list(self._queue):
            since = self.absent_since(request.spec)
            if since is not None and now - since >= wait:
                self._queue.remove(request)
                self._end_with(request, no_runner(request.spec, now - since), now)

    def _end_with(self, request: Request, error: ServiceError, now: float) -> None:
        if end_request(request, FinishReason.ERROR, now, error):
            self._on_end(request)


def no_runner(spec: RequestSpec, seconds: float) -> NoRunner:
    """Builds the error for a request that no runner can take."""
    model = f"model {spec.model!r}" if spec.model else "any model"
    return NoRunner(
        f"no runner for {model} has been attached for {seconds:.0f} s; start one, or try again later",
        retry_after_seconds=5.0,
    )
