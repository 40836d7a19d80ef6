"""What a local instance consists of: every process with its command, environment and address."""

import dataclasses
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from headrace.local.data_dir import DataDir
from headrace.local.failure import LocalFailure
from headrace.local.ports import MAX_RUNNERS, Ports
from headrace.local.unread_variables import unread_variables
from headrace.local.valkey import find_valkey, valkey_command

# A restart at a desk should not wait half a minute for a stream that somebody forgot.
_DRAIN_SECONDS = "5"

# Clients first, so that nobody asks a process whose supplier has gone.
_STOP_ORDER = ("gateway", "scheduler", "runner", "kvstore", "redis")


@dataclasses.dataclass(frozen=True, slots=True)
class UpOptions:
    """What `headrace up` was asked for."""

    model: str
    data_dir: str
    dtype: str | None = None
    runners: int = 1
    port_base: int | None = None
    ready_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 1 <= self.runners <= MAX_RUNNERS:
            raise LocalFailure(f"--runners {self.runners}: choose 1 to {MAX_RUNNERS}")


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One process of the instance."""

    name: str
    command: tuple[str, ...]
    address: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Set beside what the process inherits."""
    metrics_address: str | None = None
    http_address: str | None = None
    model: str | None = None
    is_vital: bool = True
    """Whether the instance is worth nothing without it."""


@dataclasses.dataclass(frozen=True, slots=True)
class StackPlan:
    """All processes in start order."""

    services: tuple[ServiceSpec, ...]
    model: str
    notices: tuple[str, ...] = ()
    """What the user should know about this plan."""

    def service(self, name: str) -> ServiceSpec:
        """Returns a service by name."""
        return next(service for service in self.services if service.name == name)

    def can_serve_without(self, lost: Collection[str]) -> bool:
        """Tells whether the instance is worth anything without these: every vital service and one runner are left."""
        left = [service.name for service in self.services if service.name not in lost]
        has_vital = all(not service.is_vital for service in self.services if service.name in lost)
        return has_vital and any(_kind(name) == "runner" for name in left)


def stop_order(names: Iterable[str]) -> list[str]:
    """Sorts services into the order in which they are ended."""
    return sorted(names, key=lambda name: _STOP_ORDER.index(_kind(name)))


def _kind(name: str) -> str:
    return "runner" if name.startswith("runner-") else name


def resolve_model(model: str) -> str:
    """Returns an absolute path for a folder; a hub id stays as it is; a folder without config.json is refused."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if model.startswith((".", "/", "~")) or model.count("/") != 1:
            raise LocalFailure(
                f"model {model}: no such folder; give --model a folder with config.json, or a hub id such as org/name"
            )
        return model
    if not (folder / "config.json").is_file():
        raise LocalFailure(f"model {folder}: no config.json in it, so it is not a model folder; see --model")
    return str(folder.resolve())


def default_model() -> str:
    """Returns the built-in model's folder."""
    folder = Path(__file__).resolve().parents[2] / "models" / "headrace-tiny"
    if not (folder / "config.json").is_file():
        raise LocalFailure(
            f"the built-in model is not at {folder}; run from a checkout, or give --model a folder or a hub id"
        )
    return str(folder)


class _Planner:
    """Builds the specs; each method is one process."""

    def __init__(self, options: UpOptions, data_dir: DataDir, sockets: Path, inherited: Mapping[str, str]) -> None:
        self._options = options
        self._data_dir = data_dir
        self._sockets = sockets
        self._inherited = inherited
        self._ports = Ports(options.port_base)
        self._model_name = model_name(options.model, inherited)
        self._scheduler_socket = f"unix:{sockets / 'scheduler.sock'}"
        self.notices: list[str] = []

    def redis(self) -> tuple[ServiceSpec | None, str | None]:
        """Returns the Valkey child, if one is needed, and the URL of whatever stores the second-level cache."""
        given = self._inherited.get("HEADRACE_KVSTORE_REDIS_URL")
        if given:
            return None, given
        binary = find_valkey()
        if binary is None:
            self.notices.append(
                "no valkey-server or redis-server found: serving without the second-level cache; "
                "install one, or set HEADRACE_KVSTORE_REDIS_URL"
            )
            return None, None
        path = self._sockets / "redis.sock"
        spec = ServiceSpec("redis", valkey_command(binary, path), f"unix:{path}", is_vital=False)
        return spec, f"unix://{path}"

    def kvstore(self, redis_url: str | None) -> ServiceSpec:
        secret = self._inherited.get("HEADRACE_KVSTORE_SECRET_FILE") or str(self._data_dir.kv_secret_file)
        settings = {"SECRET_FILE": secret, **({"REDIS_URL": redis_url} if redis_url else {})}
        return self._service("kvstore", "kvstore", settings, is_vital=False)

    def scheduler(self) -> ServiceSpec:
        settings = {"KVSTORE": self._ports.address("kvstore")}
        return self._service("scheduler", "scheduler", settings, extra_listen=self._scheduler_socket)

    def runner(self, number: int, redis_url: str | None) -> ServiceSpec:
        name = f"runner-{number}"
        settings = {"ID": name, "SCHEDULER": self._scheduler_socket, "MODEL": self._options.model}
        if self._options.dtype:
            settings["DTYPE"] = self._options.dtype
        if redis_url and "HEADRACE_RUNNER_REDIS_URL" not in self._inherited:
            settings["REDIS_URL"] = redis_url
        if self._options.runners > 1 and "HEADRACE_RUNNER_THREADS" not in self._inherited:
            # Runners that each take all cores slow each other down.
            settings["THREADS"] = str(max(1, (os.cpu_count() or 1) // self._options.runners))
        is_only = self._options.runners == 1
        return self._service(name, "runner", settings, model=self._model_name, is_vital=is_only)

    def gateway(self) -> ServiceSpec:
        settings = {
            "HTTP_LISTEN": self._ports.address("gateway HTTP"),
            "ADMIN_LISTEN": self._ports.address("gateway admin"),
            "SCHEDULER": self._scheduler_socket,
            "MODEL": self._options.model,
        }
        http = f"http://{self._ports.address('gateway HTTP')}"
        return self._service("gateway", "gateway", settings, model=self._model_name, http_address=http)

    def _service(
        self,
        name: str,
        module: str,
        settings: Mapping[str, str],
        *,
        extra_listen: str = "",
        model: str | None = None,
        http_address: str | None = None,
        is_vital: bool = True,
    ) -> ServiceSpec:
        prefix = f"HEADRACE_{module.upper()}_"
        address, metrics = self._ports.address(name), self._ports.address(f"{name} metrics")
        listen = f"{address},{extra_listen}" if extra_listen else address
        environment = {f"{prefix}{key}": value for key, value in settings.items()}
        environment |= {f"{prefix}LISTEN": listen, f"{prefix}METRICS_LISTEN": metrics}
        return ServiceSpec(
            name=name,
            # -P: a folder named services where the user happens to stand is not ours.
            command=(sys.executable, "-P", "-m", f"services.{module}"),
            address=address,
            environment=environment,
            metrics_address=metrics,
            http_address=http_address,
            model=model,
            is_vital=is_vital,
        )


def plan_stack(options: UpOptions, data_dir: DataDir, sockets: Path, cluster_token: str) -> StackPlan:
    """Lists every process that the options ask for."""
    planner = _Planner(options, data_dir, sockets, os.environ)
    redis, redis_url = planner.redis()
    services = [
        *([redis] if redis else []),
        planner.kvstore(redis_url),
        planner.scheduler(),
        *(planner.runner(number, redis_url) for number in range(options.runners)),
        planner.gateway(),
    ]
    shared = _shared_environment(os.environ, cluster_token)
    with_shared = [
        service
        if service.name == "redis"
        else dataclasses.replace(service, environment={**shared, **service.environment})
        for service in services
    ]
    notices = (*planner.notices, *unread_variables(os.environ))
    return StackPlan(tuple(with_shared), model_name(options.model, os.environ), notices)


def model_name(model: str, environment: Mapping[str, str]) -> str:
    """Returns the name that clients ask for, as the gateway decides it."""
    folder = Path(model)
    return environment.get("HEADRACE_GATEWAY_MODEL_NAME") or (folder.name if folder.is_dir() else model)


def _shared_environment(inherited: Mapping[str, str], cluster_token: str) -> dict[str, str]:
    loopback = ",".join(filter(None, [inherited.get("no_grpc_proxy") or inherited.get("no_proxy"), "127.0.0.1"]))
    return {
        "HEADRACE_PROCESS_LOG_FORMAT": "json",
        "HEADRACE_PROCESS_CLUSTER_TOKEN": cluster_token,
        "HEADRACE_PROCESS_DRAIN_SECONDS": inherited.get("HEADRACE_PROCESS_DRAIN_SECONDS", _DRAIN_SECONDS),
        "PYTHONUNBUFFERED": "1",
        # A proxy of the environment is never meant for the processes of one machine.
        "no_grpc_proxy": loopback,
    }
