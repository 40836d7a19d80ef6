"""What a gateway is told: HEADRACE_GATEWAY_*."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The settings of one gateway."""

    model: str
    """Folder or hub id whose tokenizer, chat template and defaults are used; the runners serve the same model."""
    model_name: str | None = None
    """Name under which clients ask for the model; absent: the hub id or the folder's name."""
    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    http_listen: str = "127.0.0.1:8080"
    admin_listen: str = "127.0.0.1:50061"
    metrics_listen: str = "127.0.0.1:9091"
    scheduler: str = "127.0.0.1:50052"
    """gRPC address of the scheduler; may be unix:/path."""
    api_keys_file: str | None = None
    """Lines of tenant:sha256-hex-of-key; absent: everybody is the tenant "public"."""
    request_seconds: float = 3600.0
    """Longest time that a request may take, also when its caller sets no deadline."""
    poll_seconds: float = 1.0
    """How often the scheduler is asked which runners are attached."""

    def __post_init__(self) -> None:
        for name in ("request_seconds", "poll_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0")
