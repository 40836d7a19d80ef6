"""What the runner asks of the device that it computes on."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import torch

from services.common.config import ConfigError

# The control group's files; absent outside Linux and outside containers.
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMORY_CURRENT = Path("/sys/fs/cgroup/memory.current")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """How busy and how full a device is."""

    utilization: float | None
    """0 to 1; None: not known."""
    memory_used_bytes: int


class Device(Protocol):
    """A place to compute."""

    torch_device: torch.device

    def free_bytes(self) -> int:
        """Returns the memory that is still free."""

    def read(self) -> DeviceReading:
        """Measures now."""


def count_cores(quota_file: Path = _CPU_QUOTA) -> int:
    """Returns the cores that this process may use, within the container's quota if there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text().split()
        return max(min(cores, round(int(quota) / int(period))), 1)
    except (OSError, ValueError):
        return cores


class CpuDevice:
    """The cores and the memory of this machine, or of this container."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self._cores = count_cores()
        self._process = psutil.Process()
        self._process.cpu_percent()

    def free_bytes(self) -> int:
        """Returns the free memory, within the container's limit if there is one."""
        available = int(psutil.virtual_memory().available)
        try:
            limit, current = int(_MEMORY_LIMIT.read_text()), int(_MEMORY_CURRENT.read_text())
        except (OSError, ValueError):
            return available
        return max(min(available, limit - current), 0)

    def read(self) -> DeviceReading:
        """Measures this process: its share of the cores since the last reading, and its resident memory."""
        share = self._process.cpu_percent() / 100 / self._cores
        return DeviceReading(min(share, 1.0), int(self._process.memory_info().rss))


class CudaDevice:
    """One NVIDIA GPU."""

    def __init__(self, name: str) -> None:
        self.torch_device = torch.device(name)
        torch.cuda.set_device(self.torch_device)

    def free_bytes(self) -> int:
        """Returns the free memory of the GPU."""
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def read(self) -> DeviceReading:
        """Measures the GPU; its utilization only where NVIDIA's library for it is installed."""
        free, total = torch.cuda.mem_get_info(self.torch_device)
        try:
            utilization = torch.cuda.utilization(self.torch_device) / 100
        except (ModuleNotFoundError, RuntimeError):
            utilization = None
        return DeviceReading(utilization, int(total - free))


def open_device(name: str) -> Device:
    """Returns the device of a name; raises ConfigError if there is none."""
    if name == "cpu":
        return CpuDevice()
    if name != "cuda" and not name.startswith("cuda:"):
        raise ConfigError(f"HEADRACE_RUNNER_DEVICE={name!r} is not a device; use cpu or cuda")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"HEADRACE_RUNNER_DEVICE={name}, but this PyTorch ({torch.__version__}) sees no CUDA GPU; use cpu, or "
            "install a CUDA build of PyTorch and check nvidia-smi"
        )
    return CudaDevice(name)
