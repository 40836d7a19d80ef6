"""The block pool: nothing is used twice, nothing is lost, nothing is found that is not there."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.scheduler.block_keys import KeyChain, KeyScope
from services.scheduler.block_pool import BlockPool, CachedBlock

SCOPE = KeyScope("t", "w", "k", "", "f", "f", "l", "r", 2)


def chain(digest: object = None) -> KeyChain:
    return KeyChain(SCOPE) if digest is None else KeyChain(SCOPE, digest)  # type: ignore[arg-type]


def fill(pool: BlockPool, tokens: list[int], keys: list[bytes]) -> list[int]:
    """Allocates and registers the full blocks of a sequence, as a first run of it would."""
    blocks = len(tokens) // pool.block_tokens
    block_ids = pool.allocate(blocks)
    assert block_ids is not None
    parent: CachedBlock | None = None
    for index, block_id in enumerate(block_ids):
        part = tuple(tokens[index * pool.block_tokens : (index + 1) * pool.block_tokens])
        parent = pool.register(block_id, keys[index], part, parent)
    return block_ids


def test_released_cached_blocks_are_found_again_and_hold_the_same_tokens() -> None:
    pool, tokens = BlockPool(4, 2), [1, 2, 3, 4]
    keys = chain().keys(tokens, 2)
    block_ids = fill(pool, tokens, keys)
    pool.release(block_ids)

    assert [content.block_id for content in pool.match(keys, tokens, 2)] == block_ids
    assert pool.available == 4


def test_the_tail_of_a_chain_is_evicted_before_its_head() -> None:
    pool, tokens = BlockPool(2, 2), [1, 2, 3, 4]
    keys = chain().keys(tokens, 2)
    head, _ = block_ids = fill(pool, tokens, keys)
    pool.release(block_ids)

    pool.allocate(1)

    assert [content.block_id for content in pool.match(keys, tokens, 2)] == [head]


def test_held_blocks_are_never_evicted() -> None:
    pool, tokens = BlockPool(2, 2), [1, 2]
    keys = chain().keys(tokens, 1)
    held = fill(pool, tokens, keys)

    assert pool.allocate(2) is None
    other = pool.allocate(1)

    assert other is not None
    assert other != held
    assert len(pool.match(keys, tokens, 1)) == 1


def test_an_evicted_block_can_no_longer_be_found() -> None:
    """KV-8."""
    pool, tokens = BlockPool(1, 2), [1, 2]
    keys = chain().keys(tokens, 1)
    pool.release(fill(pool, tokens, keys))
    pool.allocate(1)

    assert pool.match(keys, tokens, 1) == []
    pool.check_integrity()


def test_equal_hashes_of_different_tokens_are_a_miss() -> None:
    """KV-3."""
    pool = BlockPool(8, 2)
    constant = chain(lambda data: b"same").keys([1, 2, 3, 4], 2)
    pool.release(fill(pool, [1, 2, 3, 4], constant))

    assert pool.match(constant, [5, 6, 3, 4], 2) == []
    assert len(pool.match(constant, [1, 2, 1, 2], 2)) == 1, "the second block has another parent"


def test_equal_tokens_after_different_parents_are_a_miss_even_when_all_hashes_agree() -> None:
    """KV-3: the parent was evicted, and another one has taken its key."""
    pool, keys = BlockPool(2, 1), [b"parent", b"child"]
    old, child = pool.allocate(2) or []
    parent = pool.register(old, b"parent", (1,), None)
    pool.register(child, b"child", (9,), parent)
    pool.release([old])
    pool.allocate(1)
    pool.register(old, b"parent", (2,), None)

    assert pool.match(keys, [1, 9], 2) == []
    assert [content.block_id for content in pool.match(keys, [2, 9], 2)] == [old]


def test_a_second_copy_of_a_cached_block_stays_private_and_is_freed() -> None:
    pool, tokens = BlockPool(4, 2), [1, 2]
    keys = chain().keys(tokens, 1)
    first, second = fill(pool, tokens, keys), fill(pool, tokens, keys)
    pool.release(second)
    pool.release(first)

    assert pool.cached == 1
    assert [content.block_id for content in pool.match(keys, tokens, 1)] == first
    pool.check_integrity()


class PoolMachine(RuleBasedStateMachine):
    """Random sequences over two token values, so that prefixes are shared all the time; the hash has only 2 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(7, 2)
        self.held: list[tuple[list[int], list[int]]] = []
        self.written: dict[int, tuple[int, ...]] = {}

    @rule(tokens=st.lists(st.integers(0, 1), min_size=2, max_size=10))
    def run(self, tokens: list[int]) -> None:
        """Does what a placement does: match, take, allocate the rest, compute, register."""
        pool, blocks = self.pool, len(tokens) // 2
        keys = chain(lambda data: bytes([hash(data) & 3])).keys(tokens, blocks)
        matched = pool.match(keys, tokens, blocks)
        for index, content in enumerate(matched):
            assert self.written[content.block_id] == tuple(tokens[: 2 * index + 2]), "a hit with other tokens"
        matched_ids = [content.block_id for content in matched]
        pool.take(matched_ids)
        fresh = pool.allocate(blocks - len(matched))
        if fresh is None:
            pool.release(matched_ids)
            return
        everybody = {block_id for block_ids, _ in self.held for block_id in block_ids}
        assert not everybody & set(fresh), "a held block was handed out"
        block_ids, parent = matched_ids + fresh, matched[-1] if matched else None
        for index in range(len(matched), blocks):
            self.written[block_ids[index]] = tuple(tokens[: 2 * index + 2])
            part = tuple(tokens[2 * index : 2 * index + 2])
            parent = pool.register(block_ids[index], keys[index], part, parent)
        self.held.append((block_ids, tokens))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Lets one sequence go; what it wrote is what it still holds."""
        block_ids, tokens = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        for index, block_id in enumerate(block_ids):
            assert self.written[block_id] == tuple(tokens[: 2 * index + 2])
        self.pool.release(block_ids)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        """Takes a second reference, as a transfer does."""
        block_ids, tokens = data.draw(st.sampled_from(self.held))
        self.pool.take(block_ids)
        self.held.append((block_ids, tokens))

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        """KV-9."""
        self.pool.check_integrity()
        distinct = {block_id for block_ids, _ in self.held for block_id in block_ids}
        assert self.pool.used == len(distinct)

    def teardown(self) -> None:
        """When all are gone, free and evictable make the whole pool."""
        for block_ids, _ in self.held:
            self.pool.release(block_ids)
        assert self.pool.available == self.pool.total


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPoolMachine = PoolMachine.TestCase
