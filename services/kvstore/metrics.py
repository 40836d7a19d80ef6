"""What a kvstore counts for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.common.breaker import Breaker
from services.kvstore.index import BlockIndex
from services.kvstore.leases import LeaseTable

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class KvStoreMetrics:
    """The counters; gauges read the state itself at every scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.lookups = Counter(
            "headrace_kvstore_lookups", "Lookups by result: hit, miss or degraded.", ["result"], registry=registry
        )
        self.lookup_blocks = Counter(
            "headrace_kvstore_lookup_blocks", "Blocks that lookups asked for.", registry=registry
        )
        self.hit_blocks = Counter("headrace_kvstore_hit_blocks", "Blocks that lookups found.", registry=registry)
        self.lookup_seconds = Histogram(
            "headrace_kvstore_lookup_seconds", "Duration of a lookup.", buckets=_SECONDS, registry=registry
        )
        self.grants = Counter("headrace_kvstore_grants", "Leases granted.", registry=registry)
        self.commits = Counter(
            "headrace_kvstore_commits",
            "Ended leases by result: visible, not_stored, duplicate or unknown (expired, or of an earlier process).",
            ["result"],
            registry=registry,
        )
        self.vanished_values = Counter(
            "headrace_kvstore_vanished_values", "Values that Redis no longer held.", registry=registry
        )
        self.rebuilt_values = Counter(
            "headrace_kvstore_rebuilt_values", "Values found in Redis after a restart.", registry=registry
        )
        self.redis_errors = Counter(
            "headrace_kvstore_redis_errors", "Failed questions to Redis by reason.", ["reason"], registry=registry
        )
        for result in ("hit", "miss", "degraded"):
            self.lookups.labels(result)

    def note_redis_error(self, reason: str) -> None:
        """Counts a failed question to Redis."""
        self.redis_errors.labels(reason).inc()

    def watch(self, index: BlockIndex, leases: LeaseTable, breaker: Breaker) -> None:
        """Adds the gauges."""
        readings = {
            ("headrace_kvstore_blocks", "Blocks in the index."): lambda: index.totals.blocks,
            ("headrace_kvstore_values", "Values in the index."): lambda: index.totals.values,
            ("headrace_kvstore_bytes", "Bytes that the index's values hold."): lambda: index.totals.bytes,
            ("headrace_kvstore_leases", "Values being written."): lambda: len(leases),
            ("headrace_kvstore_breaker_open", "1 while Redis is left alone."): lambda: int(breaker.is_open),
            ("headrace_kvstore_breaker_openings", "Times it opened since the start."): lambda: breaker.openings,
        }
        for (name, text), read in readings.items():
            Gauge(name, text, registry=self.registry).set_function(read)
