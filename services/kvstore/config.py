"""What a kvstore is told: HEADRACE_KVSTORE_*."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class KvStoreConfig:
    """Settings of one kvstore process."""

    listen: tuple[str, ...] = ("127.0.0.1:50054",)
    """gRPC addresses."""
    metrics_listen: str = "127.0.0.1:9094"
    redis_url: str | None = None
    """unix:///path, redis://… or rediss://…; without it nothing is stored, and every answer says so."""
    secret_file: str | None = None
    """Holds the secret behind the integrity keys, made when missing; without it a restart forgets what is stored."""
    value_mib: float = 2.0
    """Most payload of one value."""
    value_expiry_seconds: int = 86_400
    lease_seconds: float = 10.0
    """How long a runner may take to write a value."""
    max_blocks: int = 1_000_000
    """Most blocks in the index, about 300 bytes each; beyond it the least recently used values are forgotten."""
    max_leases: int = 10_000
    redis_budget_seconds: float = 0.035
    """How long an answer waits for Redis; less than the scheduler waits for the answer."""
    sweep_values_per_second: int = 200
    """How fast the index is compared with what Redis still holds."""
    rebuild_seconds: float = 120.0
    """How long a restarted kvstore looks for stored values."""

    def __post_init__(self) -> None:
        for name in ("value_mib", "lease_seconds", "redis_budget_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be more than 0")
        for name in ("value_expiry_seconds", "max_blocks", "max_leases", "sweep_values_per_second"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")
