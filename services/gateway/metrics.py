"""What a gateway counts and measures for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# A queued request may wait for minutes, and must still land in a finite bucket.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 10)


class GatewayMetrics:
    """The metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "headrace_gateway_requests",
            "Generation requests by how they ended: a gRPC code and, for OK, the finish reason.",
            ["model", "code", "finish_reason"],
            registry=self.registry,
        )
        self.open_requests = Gauge(
            "headrace_gateway_open_requests", "Generation requests that run now.", registry=self.registry
        )
        self.time_to_first_token = self._seconds(
            "headrace_gateway_time_to_first_token_seconds", "From a request's receipt to its first token.", _SECONDS
        )
        self.time_per_output_token = self._seconds(
            "headrace_gateway_time_per_output_token_seconds", "Per token after the first one.", _TOKEN_SECONDS
        )
        self.request_duration = self._seconds(
            "headrace_gateway_request_duration_seconds", "From a request's receipt to its end.", _SECONDS
        )
        self.tokenize_duration = self._seconds(
            "headrace_gateway_tokenize_duration_seconds", "Chat template and tokenizing.", _SECONDS
        )
        self.prompt_tokens = self._tokens("headrace_gateway_prompt_tokens", "Prompt tokens of answered requests.")
        self.output_tokens = self._tokens("headrace_gateway_output_tokens", "Generated tokens.")
        self.cached_tokens = Counter(
            "headrace_gateway_cached_prompt_tokens",
            "Prompt tokens that a cache held, by its level.",
            ["model", "tier"],
            registry=self.registry,
        )

    def _seconds(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, description, ["model"], buckets=buckets, registry=self.registry)

    def _tokens(self, name: str, description: str) -> Counter:
        return Counter(name, description, ["model"], registry=self.registry)
