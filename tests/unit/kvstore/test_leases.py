"""Leases: one writer a block, values of a bounded size, and nothing lost with a runner."""

import hashlib
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.kvstore.leases import Lease, LeaseLimits, LeaseRequest, LeaseTable


def keys(*numbers: int) -> list[bytes]:
    return [hashlib.sha256(b"%d" % number).digest() for number in numbers]


def never(_key: bytes) -> bool:
    return False


def wanted(*numbers: int, namespace: str = "a", block_bytes: int = 100) -> LeaseRequest:
    return LeaseRequest(namespace, keys(*numbers), block_bytes, "runner-0")


def new_table(clock: Callable[[], float] = lambda: 0.0, *, max_leases: int = 100) -> LeaseTable:
    ids, names = count(1), count(1)
    limits = LeaseLimits(value_bytes=300, lease_seconds=10.0, max_leases=max_leases)
    return LeaseTable(limits, clock, lambda: next(ids), lambda space: f"{space}:{next(names)}")


def spans(leases: list[Lease]) -> list[tuple[int, int]]:
    return [(lease.first_block, len(lease.block_keys)) for lease in leases]


def test_blocks_are_cut_into_values_of_the_configured_size() -> None:
    assert spans(new_table().grant(wanted(*range(7)), never)) == [(0, 3), (3, 3), (6, 1)]


def test_a_block_larger_than_a_value_still_gets_one() -> None:
    assert spans(new_table().grant(wanted(1, 2, block_bytes=1000), never)) == [(0, 1), (1, 1)]


def test_what_is_stored_or_being_stored_is_left_out_and_splits_the_rest() -> None:
    table = new_table()
    stored = set(keys(2))
    table.grant(wanted(4), never)
    assert spans(table.grant(wanted(1, 2, 3, 4, 5, 6), stored.__contains__)) == [(0, 1), (2, 1), (4, 2)]


def test_a_key_that_repeats_in_a_request_is_granted_once() -> None:
    assert spans(new_table().grant(wanted(1, 1, 2), never)) == [(0, 1), (2, 1)]


def test_namespaces_lease_the_same_key_beside_each_other() -> None:
    table = new_table()
    assert table.grant(wanted(1), never)
    assert table.grant(wanted(1, namespace="b"), never)
    assert not table.grant(wanted(1), never)


def test_an_expired_lease_is_given_back_and_its_holder_comes_too_late() -> None:
    now = [0.0]
    table = new_table(lambda: now[0])
    (first,) = table.grant(wanted(1, 2), never)
    now[0] = 9.9
    assert not table.grant(wanted(1, 2), never)
    now[0] = 10.0
    (second,) = table.grant(wanted(1, 2), never)
    assert table.end(first.lease_id) is None
    assert table.end(second.lease_id) == second
    assert table.end(second.lease_id) is None


def test_a_lease_ended_early_frees_its_blocks_at_once() -> None:
    table = new_table()
    (lease,) = table.grant(wanted(1), never)
    table.end(lease.lease_id)
    assert len(table) == 0
    assert table.grant(wanted(1), never)


def test_beyond_the_limit_nothing_is_granted_until_leases_end() -> None:
    table = new_table(max_leases=2)
    leases = table.grant(wanted(*range(9)), never)
    assert len(leases) == 2
    assert table.is_full
    assert not table.grant(wanted(50), never)
    table.end(leases[0].lease_id)
    assert table.grant(wanted(50), never)


@given(st.lists(st.integers(0, 30), max_size=30), st.sets(st.integers(0, 30)), st.integers(1, 400))
@settings(max_examples=200, deadline=None)
def test_every_free_block_is_granted_exactly_once(numbers: list[int], stored: set[int], block_bytes: int) -> None:
    taken = set(keys(*stored))
    leases = new_table().grant(wanted(*numbers, block_bytes=block_bytes), taken.__contains__)
    granted = [block for lease in leases for block in lease.block_keys]
    assert sorted(granted) == sorted(set(keys(*numbers)) - taken)
    for lease in leases:
        assert len(lease.block_keys) == 1 or len(lease.block_keys) * block_bytes <= 300
        asked = keys(*numbers)[lease.first_block : lease.first_block + len(lease.block_keys)]
        assert lease.block_keys == tuple(asked)


class LeaseMachine(RuleBasedStateMachine):
    """Grants, ends and time in any order: no block of a namespace is ever in two live leases."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table = new_table(lambda: self.now, max_leases=20)
        self.live: dict[int, Lease] = {}

    def alive(self) -> list[Lease]:
        return [lease for lease in self.live.values() if lease.expires_at > self.now]

    @rule(namespace=st.sampled_from("ab"), numbers=st.lists(st.integers(0, 15), max_size=8))
    def grant(self, namespace: str, numbers: list[int]) -> None:
        held = {(lease.namespace, block) for lease in self.alive() for block in lease.block_keys}
        for lease in self.table.grant(wanted(*numbers, namespace=namespace), never):
            assert not held & {(namespace, block) for block in lease.block_keys}
            self.live[lease.lease_id] = lease

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.live) or [10**9]))
        lease = self.live.pop(lease_id, None)
        is_alive = lease is not None and lease.expires_at > self.now
        assert self.table.end(lease_id) == (lease if is_alive else None)

    @rule(seconds=st.floats(0, 8))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_count_agrees(self) -> None:
        assert not self.table.is_full or len(self.alive()) == 20
        assert len(self.table) == len(self.alive())


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("numbers", [[], [1]])
def test_nothing_to_store_grants_nothing(numbers: list[int]) -> None:
    assert new_table().grant(wanted(*numbers), lambda _key: True) == []
