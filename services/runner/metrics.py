"""What a runner counts for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runner.device import Device
from services.runner.l2.transfers import L2Transfers
from services.runner.model_identity import Identity
from services.runner.plan_executor import PlanExecutor
from services.runner.step import FailureReason, StepOrder, StepOutcome

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class RunnerMetrics:
    """Counters of the steps; gauges read the state itself at every scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._step_seconds = Histogram(
            "headrace_runner_step_seconds",
            "Time of a step by part: prepare, forward, sample.",
            ["part"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._batch = Histogram(
            "headrace_runner_batch_sequences", "Sequences of a step.", buckets=_SEQUENCES, registry=registry
        )
        self._computed = Counter("headrace_runner_computed_tokens", "Tokens run through the model.", registry=registry)
        self._sampled = Counter("headrace_runner_sampled_tokens", "Tokens drawn.", registry=registry)
        self._failures = Counter(
            "headrace_runner_failed_sequences", "Sequences that could not go on.", ["reason"], registry=registry
        )
        self.attachments = Counter("headrace_runner_attachments", "Times a scheduler took it in.", registry=registry)
        self.attached = Gauge("headrace_runner_attached", "1 while a scheduler uses it.", registry=registry)
        for reason in FailureReason:
            self._failures.labels(reason.value)

    def watch(self, identity: Identity, executor: PlanExecutor, device: Device) -> None:
        """Adds what is known once the model is loaded."""
        info = Info("headrace_runner_model", "The model.", registry=self._registry)
        info.info({"name": identity.name, "version": identity.version, "dtype": identity.dtype})
        readings = {
            ("headrace_runner_sequences", "Slots that are taken."): lambda: executor.sequences,
            ("headrace_runner_kv_blocks", "Blocks of the KV cache."): lambda: identity.block_count,
            ("headrace_runner_kv_block_bytes", "Bytes of one block."): lambda: identity.block_bytes,
            ("headrace_runner_running_transfers", "Transfers under way."): lambda: executor.running_transfers,
            ("headrace_runner_memory_bytes", "Memory in use."): lambda: device.read().memory_used_bytes,
        }
        for (name, text), read in readings.items():
            Gauge(name, text, registry=self._registry).set_function(read)

    def watch_transfers(self, transfers: L2Transfers) -> None:
        """Adds what the second-level cache's transfers count."""
        self._registry.register(_TransferCounts(transfers))

    def note_step(self, order: StepOrder, outcome: StepOutcome) -> None:
        """Counts a step."""
        if not order.work:
            return
        times = outcome.times
        for part, nanoseconds in (
            ("prepare", times.prepare_nanoseconds),
            ("forward", times.forward_nanoseconds),
            ("sample", times.sample_nanoseconds),
        ):
            self._step_seconds.labels(part).observe(nanoseconds / 1e9)
        self._batch.observe(outcome.batch_sequences)
        self._computed.inc(outcome.batch_tokens)
        self._sampled.inc(len(outcome.token_ids))
        for failure in outcome.failures:
            self._failures.labels(failure.reason.value).inc()


class _TransferCounts(Collector):
    """Reads the transfers' own sums at every scrape."""

    def __init__(self, transfers: L2Transfers) -> None:
        self._transfers = transfers

    def collect(self) -> Iterator[Metric]:
        """Yields one family for each sum."""
        counters = self._transfers.counters()
        ends = CounterMetricFamily(
            "headrace_runner_l2_transfers", "Ended transfers of the second-level cache.", labels=["kind", "outcome"]
        )
        for kind, outcomes in (("load", counters.loads), ("publish", counters.publishes)):
            for outcome, count in outcomes.items():
                ends.add_metric([kind, outcome], count)
        yield ends
        sums = {"load": (counters.loaded_bytes, counters.load_seconds)}
        sums["publish"] = (counters.published_bytes, counters.publish_seconds)
        moved = CounterMetricFamily("headrace_runner_l2_bytes", "Payload bytes moved.", labels=["kind"])
        spent = CounterMetricFamily("headrace_runner_l2_seconds", "Time of transfers, summed.", labels=["kind"])
        for kind, (payload_bytes, seconds) in sums.items():
            moved.add_metric([kind], payload_bytes)
            spent.add_metric([kind], seconds)
        yield moved
        yield spent
        yield GaugeMetricFamily(
            "headrace_runner_l2_breaker_open", "1 while Redis is left alone.", value=int(counters.is_breaker_open)
        )
        yield GaugeMetricFamily("headrace_runner_l2_waiting", "Transfers that wait.", value=counters.waiting)
