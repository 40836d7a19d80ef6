"""The kvstore's index, by example and against a model that scans a list."""

import hashlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.kvstore.index import BlockIndex, StoredRun, StoredValue, Usage


def key(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def keys(*numbers: int) -> tuple[bytes, ...]:
    return tuple(key(number) for number in numbers)


def value(name: str, *numbers: int, namespace: str = "a", expires_at: float = 1e9) -> StoredValue:
    return StoredValue(name, namespace, keys(*numbers), 10 * len(numbers), expires_at)


def new_index(max_blocks: int = 1000) -> BlockIndex:
    return BlockIndex(max_blocks, lambda: 0.0)


def test_a_prefix_over_several_values_comes_as_one_run_each() -> None:
    index = new_index()
    index.add(value("v1", 1, 2, 3))
    index.add(value("v2", 4, 5))
    assert index.find_prefix("a", keys(1, 2, 3, 4, 9)) == [StoredRun("v1", 0, 3), StoredRun("v2", 0, 1)]
    assert index.find_prefix("a", keys(2, 3)) == [StoredRun("v1", 1, 2)]
    assert index.find_prefix("a", keys(9, 1, 2)) == []
    assert index.find_prefix("a", ()) == []


def test_a_gap_ends_the_prefix_though_later_blocks_are_stored() -> None:
    index = new_index()
    index.add(value("v1", 1))
    index.add(value("v3", 3))
    assert index.find_prefix("a", keys(1, 2, 3)) == [StoredRun("v1", 0, 1)]


def test_a_block_of_one_namespace_is_not_found_in_another_even_under_the_same_key() -> None:
    index = new_index()
    index.add(value("v1", 1, 2))
    assert index.find_prefix("b", keys(1, 2)) == []
    assert not index.holds("b", key(1))
    assert index.add(value("v2", 1, 2, namespace="b"))
    index.remove("v1")
    assert index.find_prefix("a", keys(1)) == []
    assert index.find_prefix("b", keys(1, 2)) == [StoredRun("v2", 0, 2)]


def test_an_expired_value_is_not_found_and_can_be_stored_again() -> None:
    now = [0.0]
    index = BlockIndex(1000, lambda: now[0])
    index.add(value("v1", 1, 2, expires_at=10))
    now[0] = 10.0
    assert index.find_prefix("a", keys(1, 2)) == []
    assert index.has_expired("v1")
    assert index.add(value("v2", 1, 2, expires_at=20))
    index.remove("v1")
    assert index.find_prefix("a", keys(1, 2)) == [StoredRun("v2", 0, 2)]
    assert index.usage("a") == Usage(2, 20, 1)


def test_a_value_without_a_new_block_is_refused_and_counts_nowhere() -> None:
    index = new_index()
    index.add(value("v1", 1, 2))
    assert not index.add(value("v2", 2, 1))
    assert not index.add(value("v1", 3))
    assert index.totals == index.usage("a") == Usage(2, 20, 1)


def test_beyond_the_limit_the_least_recently_found_value_is_forgotten() -> None:
    index = new_index(max_blocks=4)
    index.add(value("v1", 1, 2))
    index.add(value("v2", 3, 4))
    index.find_prefix("a", keys(1))
    index.add(value("v3", 5))
    assert index.value_keys() == ["v1", "v3"]
    assert index.find_prefix("a", keys(3)) == []


class IndexMachine(RuleBasedStateMachine):
    """Adds, removals and time in any order: the index finds what a scan over all live values finds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.index = BlockIndex(10_000, lambda: self.now)
        self.values: dict[str, StoredValue] = {}
        self.count = 0

    @rule(
        namespace=st.sampled_from("ab"),
        numbers=st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True),
        life=st.floats(0.5, 20),
    )
    def add(self, namespace: str, numbers: list[int], life: float) -> None:
        self.count += 1
        new = value(f"v{self.count}", *numbers, namespace=namespace, expires_at=self.now + life)
        is_news = any(not self.is_stored(namespace, block) for block in new.block_keys)
        assert self.index.add(new) == is_news
        if is_news:
            self.values[new.value_key] = new

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.values) or ["none"]))
        assert self.index.remove(name) == (self.values.pop(name, None) is not None)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(namespace=st.sampled_from("ab"), numbers=st.lists(st.integers(0, 12), max_size=8, unique=True))
    def look_up(self, namespace: str, numbers: list[int]) -> None:
        chain = keys(*numbers)
        runs = self.index.find_prefix(namespace, chain)
        found: list[bytes] = []
        for run in runs:
            held = self.values[run.value_key]
            assert held.namespace == namespace
            assert held.expires_at > self.now
            found.extend(held.block_keys[run.first_index : run.first_index + run.blocks])
        assert found == list(chain[: len(found)])
        if len(found) < len(chain):
            assert not self.index.holds(namespace, chain[len(found)])

    def is_stored(self, namespace: str, block: bytes) -> bool:
        return self.index.holds(namespace, block)

    @invariant()
    def what_is_held_is_in_a_live_value(self) -> None:
        for namespace in "ab":
            live = [v for v in self.values.values() if v.namespace == namespace]
            usage = self.index.usage(namespace)
            assert usage.values == len(live)
            assert usage.bytes == sum(v.stored_bytes for v in live)
            assert usage.blocks <= len({block for v in live for block in v.block_keys})
        assert self.index.totals.values == len(self.values)
        assert self.index.totals.blocks == sum(self.index.usage(namespace).blocks for namespace in "ab")


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
