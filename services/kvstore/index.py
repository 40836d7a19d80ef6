"""Which blocks exist in Redis, and where: pure bookkeeping, so what it says is only as true as what it was told."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredValue:
    """One value in Redis and the blocks it holds, in order."""

    value_key: str
    namespace: str
    block_keys: tuple[bytes, ...]
    stored_bytes: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Consecutive blocks of a chain that one value holds."""

    value_key: str
    first_index: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a namespace stores."""

    blocks: int = 0
    bytes: int = 0
    values: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    value_key: str
    index: int


@dataclass(slots=True)
class _Namespace:
    places: dict[bytes, _Place] = field(default_factory=dict)
    bytes: int = 0
    values: int = 0


class BlockIndex:
    """Finds stored blocks by key, within a namespace only. Values leave when they expire, vanish, or are too many."""

    def __init__(self, max_blocks: int, clock: Callable[[], float]) -> None:
        self._max_blocks = max_blocks
        self._clock = clock
        self._namespaces: dict[str, _Namespace] = {}
        # Least recently used first.
        self._values: OrderedDict[str, StoredValue] = OrderedDict()
        self._blocks = 0
        self._bytes = 0

    @property
    def totals(self) -> Usage:
        """Counts over all namespaces."""
        return Usage(self._blocks, self._bytes, len(self._values))

    @property
    def is_full(self) -> bool:
        """Tells whether another value would make an older one be forgotten."""
        return self._blocks >= self._max_blocks

    def find_prefix(self, namespace: str, block_keys: Sequence[bytes]) -> list[StoredRun]:
        """Returns where the longest stored prefix of a chain lies, in order and without a gap."""
        space = self._namespaces.get(namespace)
        if space is None:
            return []
        runs: list[StoredRun] = []
        now = self._clock()
        for key in block_keys:
            place = space.places.get(key)
            if place is None or self._values[place.value_key].expires_at <= now:
                break
            last = runs[-1] if runs else None
            if last and last.value_key == place.value_key and last.first_index + last.blocks == place.index:
                runs[-1] = StoredRun(last.value_key, last.first_index, last.blocks + 1)
            else:
                runs.append(StoredRun(place.value_key, place.index, 1))
        for run in runs:
            self._values.move_to_end(run.value_key)
        return runs

    def holds(self, namespace: str, block_key: bytes) -> bool:
        """Tells whether a block is stored and will stay for a while."""
        space = self._namespaces.get(namespace)
        place = space.places.get(block_key) if space else None
        return place is not None and self._values[place.value_key].expires_at > self._clock()

    def values_of(self, namespace: str, block_keys: Sequence[bytes]) -> list[str]:
        """Returns the values that are said to hold any of these blocks."""
        space = self._namespaces.get(namespace)
        places = [space.places.get(key) for key in block_keys] if space else []
        return list(dict.fromkeys(place.value_key for place in places if place is not None))

    def has_value(self, value_key: str) -> bool:
        """Tells whether a value is known."""
        return value_key in self._values

    def add(self, value: StoredValue) -> bool:
        """Makes a value visible; False when it is known or all of its blocks are stored already."""
        space = self._namespaces.setdefault(value.namespace, _Namespace())
        fresh = {key: place for place, key in enumerate(value.block_keys) if not self.holds(value.namespace, key)}
        if value.value_key in self._values or not fresh:
            self._drop_if_empty(value.namespace, space)
            return False
        for key, index in fresh.items():
            self._blocks += key not in space.places
            space.places[key] = _Place(value.value_key, index)
        self._values[value.value_key] = value
        self._count(space, value, +1)
        self._forget_beyond_limit()
        return value.value_key in self._values

    def remove(self, value_key: str) -> bool:
        """Forgets a value and the blocks that only it holds."""
        value = self._values.pop(value_key, None)
        if value is None:
            return False
        space = self._namespaces[value.namespace]
        for key in value.block_keys:
            place = space.places.get(key)
            if place is not None and place.value_key == value_key:
                del space.places[key]
                self._blocks -= 1
        self._count(space, value, -1)
        self._drop_if_empty(value.namespace, space)
        return True

    def value_keys(self) -> list[str]:
        """Returns the keys of all values, least recently used first."""
        return list(self._values)

    def has_expired(self, value_key: str) -> bool:
        """Tells whether Redis has let a known value go by now."""
        value = self._values.get(value_key)
        return value is not None and value.expires_at <= self._clock()

    def usage(self, namespace: str) -> Usage:
        """Counts what a namespace stores."""
        space = self._namespaces.get(namespace)
        return Usage() if space is None else Usage(len(space.places), space.bytes, space.values)

    def _forget_beyond_limit(self) -> None:
        while self._blocks > self._max_blocks:
            self.remove(next(iter(self._values)))

    def _count(self, space: _Namespace, value: StoredValue, sign: int) -> None:
        space.values += sign
        space.bytes += sign * value.stored_bytes
        self._bytes += sign * value.stored_bytes

    def _drop_if_empty(self, namespace: str, space: _Namespace) -> None:
        if not space.places and not space.values:
            self._namespaces.pop(namespace, None)
