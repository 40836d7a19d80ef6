"""How every process of an instance is right now."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

from headrace.local.health import Health, check_health
from headrace.local.state import InstanceState, ServiceState


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One line of `headrace status`."""

    service: ServiceState
    health: Health

    def to_json(self) -> dict[str, object]:
        """Returns what `headrace status --json` prints for it."""
        document: dict[str, object] = {
            "name": self.service.name,
            "pid": self.service.process.pid,
            "address": self.service.address,
            "health": self.health.value,
            "model": self.service.model,
            "metrics_address": self.service.metrics_address,
            "restarts": self.service.restarts,
            "log": self.service.log,
        }
        if self.service.http_address is not None:
            document["http_address"] = self.service.http_address
        return document


def instance_status(state: InstanceState) -> list[ServiceStatus]:
    """Checks all processes at once."""
    with ThreadPoolExecutor(max_workers=max(1, len(state.services))) as pool:
        return list(pool.map(_check, state.services))


def _check(service: ServiceState) -> ServiceStatus:
    if service.process.find() is None:
        return ServiceStatus(service, Health.DEAD)
    return ServiceStatus(service, check_health(service.name, service.address))
