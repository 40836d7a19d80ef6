"""What a scheduler is told by HEADRACE_SCHEDULER_* variables."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings of one scheduler process."""

    listen: tuple[str, ...] = ("127.0.0.1:50052",)
    """Addresses for gateways and runners: host:port or unix:/path."""
    metrics_listen: str = "127.0.0.1:9092"
    """Where Prometheus reads."""
    kvstore: str | None = "127.0.0.1:50054"
    """The kvstore; empty: no second-level cache."""
    run_ahead: int = 2
    """Unanswered plans per runner; 1 is lock-step."""
    queue_limit: int = 1024
    """Requests that may wait; further ones are refused."""
    heartbeat_seconds: float = 1.0
    """How often a runner says that it lives."""
    missed_heartbeats: int = 3
    """Heartbeats without which a runner counts as lost."""
    runner_wait_seconds: float = 30.0
    """How long requests wait for a runner that went away, or for the first one."""
    lookup_seconds: float = 0.05
    """What a request gives the second-level cache to answer a look-up."""
    load_seconds: float = 0.2
    """What a request gives the runner to load a value of cached blocks, before it computes them; 10 ms a MB on top."""

    def __post_init__(self) -> None:
        if self.run_ahead < 1:
            raise ValueError(f"run_ahead is {self.run_ahead}; use 1 (lock-step) or more")
        if self.queue_limit < 1:
            raise ValueError(f"queue_limit is {self.queue_limit}; use 1 or more")
        if self.missed_heartbeats < 1:
            raise ValueError(f"missed_heartbeats is {self.missed_heartbeats}; use 1 or more")
        for name in ("heartbeat_seconds", "runner_wait_seconds", "lookup_seconds", "load_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use a number above 0")
