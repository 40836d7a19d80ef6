"""Which port each process of a local instance listens on."""

import dataclasses
import socket

from headrace.local.failure import LocalFailure

HOST = "127.0.0.1"
MAX_RUNNERS = 50

# Every port is a base plus an offset, so that --port-base moves all of them and keeps their last digits.
GRPC_BASE, HTTP_BASE, METRICS_BASE = 50050, 8000, 9000
OFFSETS = {
    "gateway": 1,
    "scheduler": 2,
    "runner-0": 3,
    "kvstore": 4,
    "gateway admin": 11,
    "gateway HTTP": 80,
    "gateway metrics": 91,
    "scheduler metrics": 92,
    "runner-0 metrics": 93,
    "kvstore metrics": 94,
}
_MORE_RUNNERS = 20
_MORE_RUNNERS_METRICS = 100
_HIGHEST_OFFSET = _MORE_RUNNERS_METRICS + MAX_RUNNERS

OFFSETS_HELP = (
    "P+1 gateway gRPC, P+80 its HTTP, P+11 its admin; P+2 scheduler; P+3 runner-0, P+20+k runner-k; P+4 kvstore; "
    "/metrics: P+91 gateway, P+92 scheduler, P+93 runner-0, P+100+k runner-k, P+94 kvstore"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one instance; without a base the ones of the documentation."""

    base: int | None = None

    def __post_init__(self) -> None:
        if self.base is not None and not 1024 <= self.base <= 65535 - _HIGHEST_OFFSET:
            raise LocalFailure(f"--port-base {self.base}: choose 1024 to {65535 - _HIGHEST_OFFSET}")

    def of(self, name: str) -> int:
        """Returns the port of a name in OFFSETS, or of "runner-k" and "runner-k metrics"."""
        kind = HTTP_BASE if name.endswith(" HTTP") else METRICS_BASE if name.endswith(" metrics") else GRPC_BASE
        return (self.base if self.base is not None else kind) + _offset(name)

    def address(self, name: str) -> str:
        """Returns "127.0.0.1:port" of a name."""
        return f"{HOST}:{self.of(name)}"

    def names(self, runners: int) -> list[str]:
        """Lists everything that listens, with so many runners."""
        more = [f"runner-{k}{suffix}" for k in range(1, runners) for suffix in ("", " metrics")]
        return [*OFFSETS, *more]


def _offset(name: str) -> int:
    if name in OFFSETS:
        return OFFSETS[name]
    number = int(name.removeprefix("runner-").removesuffix(" metrics"))
    return number + (_MORE_RUNNERS_METRICS if name.endswith(" metrics") else _MORE_RUNNERS)


def require_free(ports: Ports, runners: int) -> None:
    """Raises LocalFailure naming every port that something else listens on."""
    taken = [f"{ports.of(name)} ({name})" for name in ports.names(runners) if not _is_free(ports.of(name))]
    if taken:
        several = len(taken) > 1
        raise LocalFailure(
            f"port{'s' if several else ''} {', '.join(taken)} {'are' if several else 'is'} taken; "
            "is another Headrace running? `headrace down` stops the one of this data directory; "
            "`headrace up --port-base 52000 --data-dir DIR` starts a second one beside it"
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do it: a port whose last connections are in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
