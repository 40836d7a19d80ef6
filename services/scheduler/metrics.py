"""What Prometheus sees of a scheduler: gauges read from the live state, counters fed by the loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.scheduler.fleet import Fleet
from services.scheduler.request import Request
from services.scheduler.settle import Settled
from services.scheduler.step_plan import Plan, StepOutcome
from services.scheduler.transfers import LoadOrder, PublishOrder, TransferReport
from services.scheduler.waiting_queue import WaitingQueue

PRIORITIES = 10
STEP_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PLAN_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)
QUEUE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class StateGauges(Collector):
    """Reads queue and runners when scraped, so that no gauge can freeze."""

    def __init__(self, queue: WaitingQueue, fleet: Fleet) -> None:
        self._queue = queue
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """Yields the current state."""
        lengths = self._queue.lengths()
        queue = GaugeMetricFamily("headrace_scheduler_queue_length", "Waiting requests.", labels=["priority"])
        for priority in range(PRIORITIES):
            queue.add_metric([str(priority)], lengths.get(priority, 0))
        running = GaugeMetricFamily("headrace_scheduler_running_requests", "Running requests.", labels=["runner"])
        used = GaugeMetricFamily("headrace_scheduler_kv_usage_ratio", "Blocks held by requests.", labels=["runner"])
        cached = GaugeMetricFamily("headrace_scheduler_kv_cached_ratio", "Blocks held for reuse.", labels=["runner"])
        sessions = self._fleet.sessions
        for session in sessions:
            runner, pool = [session.identity.runner_id], session.pool
            running.add_metric(runner, len(session.running))
            used.add_metric(runner, pool.used / pool.total)
            cached.add_metric(runner, pool.cached / pool.total)
        runners = GaugeMetricFamily("headrace_scheduler_runners", "Attached runners.", value=len(sessions))
        yield from (queue, running, used, cached, runners)


class SchedulerMetrics:
    """Counters and histograms of one scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"headrace_scheduler_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"headrace_scheduler_{name}", text, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Ended requests.", ("finish_reason",))
        self._refusals = counter("refusals", "Requests that were not let in.", ("reason",))
        self._tokens = counter("generated_tokens", "Accepted output tokens.")
        self._queries = counter("prefix_cache_queries", "Prompt tokens looked up.", ("tier",))
        self._hits = counter("prefix_cache_hits", "Prompt tokens found.", ("tier",))
        self._preemptions = counter("preemptions", "Requests that lost their blocks to others.")
        self._losses = counter("runner_losses", "Runners that went away.")
        self._stale = counter("stale_messages", "Messages of an old epoch, dropped.")
        self._l2_failures = counter("second_level_failures", "Failed calls to the kvstore.", ("operation",))
        self._transfers = counter("transfers", "Ended block transfers.", ("kind", "outcome"))
        self._queue_seconds = histogram("queue_seconds", "From submission to the first step.", QUEUE_BUCKETS)
        self._step_seconds = histogram("step_seconds", "A step's time, as the runner says.", STEP_BUCKETS)
        self._plan_seconds = histogram("plan_seconds", "Time to plan a step.", PLAN_BUCKETS)

    def note_refused(self, reason: str) -> None:
        """Counts a request that was not let in."""
        self._refusals.labels(reason).inc()

    def note_ended(self, request: Request) -> None:
        """Counts a request that is done."""
        assert request.finish is not None
        self._requests.labels(request.finish.name.lower()).inc()

    def note_preempted(self, requests: Iterable[Request]) -> None:
        """Counts preemptions."""
        for _ in requests:
            self._preemptions.inc()

    def note_planned(self, plan: Plan, seconds: float) -> None:
        """Observes a plan and what the caches gave to the requests that start with it."""
        self._plan_seconds.observe(seconds)
        for introduction in plan.introductions:
            request = introduction.residency.request
            if request.starts == 1:
                self._queue_seconds.observe(plan.sent_at - request.clock.submitted_at)
                self._note_cache(request)

    def _note_cache(self, request: Request) -> None:
        if not request.spec.cache_policy.is_reading:
            return
        prompt_tokens = len(request.spec.prompt)
        self._queries.labels("l1").inc(prompt_tokens)
        self._hits.labels("l1").inc(request.cached_tokens_l1)
        if request.is_looked_up:
            self._queries.labels("l2").inc(prompt_tokens - request.cached_tokens_l1)
            self._hits.labels("l2").inc(request.cached_tokens_l2)

    def note_settled(self, settled: Settled, outcome: StepOutcome, now: float) -> None:
        """Observes a step's time, its tokens and the requests that ended with it."""
        waited = now - settled.plan.sent_at
        self._step_seconds.observe(waited if outcome.compute_seconds is None else outcome.compute_seconds)
        if settled.tokens:
            self._tokens.inc(settled.tokens)
        for request in settled.ended:
            self.note_ended(request)

    def note_transfer(self, order: LoadOrder | PublishOrder | None, report: TransferReport) -> None:
        """Counts a transfer's end."""
        kind = {LoadOrder: "load", PublishOrder: "publish"}.get(type(order), "unknown")
        self._transfers.labels(kind, report.outcome.name.lower()).inc()

    def note_runner_lost(self) -> None:
        """Counts a runner that went away."""
        self._losses.inc()

    def note_stale(self) -> None:
        """Counts a message of an old epoch."""
        self._stale.inc()

    def note_second_level_failure(self, operation: str) -> None:
        """Counts a call to the kvstore that failed or came too late."""
        self._l2_failures.labels(operation).inc()
