"""What a runner is told by its environment: HEADRACE_RUNNER_*."""

import socket
from dataclasses import dataclass, field

from services.common.config import ConfigError
from services.runner.l2.redis_url import parse_redis_url

PREFIX = "HEADRACE_RUNNER_"

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Settings of one runner process."""

    model: str = ""
    """A folder, or a hub id such as org/name. Required."""
    model_name: str | None = None
    """The name that clients ask for; absent: the hub id or the folder's name."""
    id: str = field(default_factory=socket.gethostname)
    """Unique among the runners of a scheduler; absent: the host's name, which is a container's or pod's own."""
    listen: tuple[str, ...] = ("127.0.0.1:50053",)
    """Health only: a runner dials its scheduler, nobody dials a runner."""
    metrics_listen: str = "127.0.0.1:9093"
    scheduler: str = "127.0.0.1:50052"
    device: str = "cpu"
    """cpu, or cuda."""
    dtype: str = "float32"
    """float32, bfloat16 or float16: weights, activations and KV cache."""
    block_tokens: int = 16
    kv_cache_mib: int | None = None
    """Size of the KV cache; absent: a quarter of the free memory, and no more than all slots can use."""
    step_tokens: int = 512
    sequence_slots: int = 64
    threads: int | None = None
    """CPU threads of the model; absent: all cores that it may use."""
    redis_url: str | None = None
    """The second-level cache; absent: none."""
    step_span_every: int = 100
    """One step in so many gets a span of its own."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError(f"{PREFIX}MODEL is not set; give a model folder or a hub id")
        if self.redis_url is not None:
            parse_redis_url(self.redis_url)
        if self.dtype not in DTYPES:
            raise ConfigError(f"{PREFIX}DTYPE={self.dtype!r} is not supported; use {', '.join(DTYPES)}")
        for name in ("block_tokens", "kv_cache_mib", "step_tokens", "sequence_slots", "threads", "step_span_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{PREFIX}{name.upper()}={value} is too small; use at least 1")
        if self.step_tokens < self.sequence_slots:
            raise ConfigError(
                f"{PREFIX}STEP_TOKENS={self.step_tokens} is less than {PREFIX}SEQUENCE_SLOTS={self.sequence_slots}; "
                "every running sequence needs one token of a step"
            )
