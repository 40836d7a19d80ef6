"""When a service that ended is started again, and when that is given up."""

import dataclasses

QUICK_DEATHS = 5
_QUICK_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0


@dataclasses.dataclass(slots=True)
class RestartPolicy:
    """Counts a service's quick deaths in a row: each doubles the pause, the fifth ends the attempts."""

    quick_deaths: int = 0

    def pause_after(self, served_seconds: float, *, was_asked: bool = False) -> float | None:
        """Returns how long to wait before the next start, or None to give up; an end on request is no death."""
        if served_seconds >= _QUICK_SECONDS:
            self.quick_deaths = 0
        if was_asked:
            return _FIRST_PAUSE_SECONDS
        self.quick_deaths += 1
        if self.quick_deaths >= QUICK_DEATHS:
            return None
        return float(min(_FIRST_PAUSE_SECONDS * 2 ** (self.quick_deaths - 1), _LONGEST_PAUSE_SECONDS))
