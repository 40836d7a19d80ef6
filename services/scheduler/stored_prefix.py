"""What the second-level cache holds of a prompt."""

from dataclasses import dataclass

from services.scheduler.block_keys import KeyScope


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Consecutive blocks of the chain that one value holds."""

    value_key: str
    first_index: int
    """Position within the value of the run's first block."""
    blocks: int


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """A leading part of a key chain, without a gap."""

    scope: KeyScope
    """The keys' scope: a runner of another one cannot use these blocks."""
    runs: tuple[StoredRun, ...]
    integrity_key: bytes

    @property
    def blocks(self) -> int:
        """How many leading blocks are stored."""
        return sum(run.blocks for run in self.runs)
