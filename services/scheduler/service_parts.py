"""What the servicer works on, built once in __main__."""

from dataclasses import dataclass

from services.scheduler.admission import Admission
from services.scheduler.config import SchedulerConfig
from services.scheduler.fleet import Fleet
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.second_level import NoSecondLevel, SecondLevel
from services.scheduler.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The parts of one scheduler."""

    config: SchedulerConfig
    queue: WaitingQueue
    fleet: Fleet
    admission: Admission
    second_level: SecondLevel | NoSecondLevel
    metrics: SchedulerMetrics
