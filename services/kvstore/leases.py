"""The right to write: at most one runner writes a block at a time, and a runner that dies gives its right back."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """One value that somebody may write until it expires."""

    lease_id: int
    namespace: str
    value_key: str
    block_keys: tuple[bytes, ...]
    first_block: int
    """Position of its first block within the request."""
    runner_id: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """How large, how long and how many."""

    value_bytes: int
    lease_seconds: float
    max_leases: int


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Consecutive blocks of a chain that a runner has computed."""

    namespace: str
    block_keys: Sequence[bytes]
    block_bytes: int
    runner_id: str


class LeaseTable:
    """Grants, ends and expires leases. Ids and value keys come from outside; both are never used twice."""

    def __init__(
        self, limits: LeaseLimits, clock: Callable[[], float], new_id: Callable[[], int], new_key: Callable[[str], str]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._new_key = new_key
        # In the order of their expiry, as all last equally long.
        self._leases: OrderedDict[int, Lease] = OrderedDict()
        self._leased: set[tuple[str, bytes]] = set()

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def is_full(self) -> bool:
        """Tells whether no further lease is granted now."""
        self._expire()
        return len(self._leases) >= self._limits.max_leases

    def grant(self, request: LeaseRequest, is_stored: Callable[[bytes], bool]) -> list[Lease]:
        """Grants values over the blocks that nobody stores or is storing, each of consecutive blocks."""
        self._expire()
        leases: list[Lease] = []
        for first, count in self._spans(request, is_stored):
            if len(self._leases) >= self._limits.max_leases:
                break
            lease = Lease(
                lease_id=self._new_id(),
                namespace=request.namespace,
                value_key=self._new_key(request.namespace),
                block_keys=tuple(request.block_keys[first : first + count]),
                first_block=first,
                runner_id=request.runner_id,
                expires_at=self._clock() + self._limits.lease_seconds,
            )
            self._leases[lease.lease_id] = lease
            self._leased.update((lease.namespace, key) for key in lease.block_keys)
            leases.append(lease)
        return leases

    def end(self, lease_id: int) -> Lease | None:
        """Ends a lease; None when there is none with this id (any more)."""
        self._expire()
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._release(lease)
        return lease

    def _spans(self, request: LeaseRequest, is_stored: Callable[[bytes], bool]) -> list[tuple[int, int]]:
        """Cuts the free blocks into (first, count) of at most one value's size; a key that repeats counts once."""
        most = max(1, self._limits.value_bytes // request.block_bytes)
        spans: list[tuple[int, int]] = []
        seen: set[bytes] = set()
        for position, key in enumerate(request.block_keys):
            if key in seen or (request.namespace, key) in self._leased or is_stored(key):
                continue
            seen.add(key)
            first, count = spans[-1] if spans else (0, 0)
            if spans and first + count == position and count < most:
                spans[-1] = (first, count + 1)
            else:
                spans.append((position, 1))
        return spans

    def _expire(self) -> None:
        now = self._clock()
        while self._leases:
            oldest = next(iter(self._leases.values()))
            if oldest.expires_at > now:
                return
            del self._leases[oldest.lease_id]
            self._release(oldest)

    def _release(self, lease: Lease) -> None:
        self._leased.difference_update((lease.namespace, key) for key in lease.block_keys)
