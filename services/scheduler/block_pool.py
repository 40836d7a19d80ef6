"""The KV blocks of one runner: who holds them, which ones can be found again, which one goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class CachedBlock:
    """What a full block holds: its own tokens, after those of its parents."""

    key: bytes
    tokens: tuple[int, ...]
    parent: CachedBlock | None
    block_id: int


def is_same_chain(one: CachedBlock | None, other: CachedBlock | None) -> bool:
    """Compares two blocks by what they and all their parents hold, whatever the hash says."""
    while one is not other:
        if one is None or other is None or one.key != other.key or one.tokens != other.tokens:
            return False
        one, other = one.parent, other.parent
    return True


class BlockPool:
    """Reference counts over blocks. A block without references is free, or cached and evictable.

            allocate                  register                release (last reference)
    free ────────────► referenced ────────────► referenced ────────────────────────────► evictable
      ▲                    │                    and indexed ◄──────────── take ───────────── │
      └─────── release ────┘                                       allocate, least recently used
    """

    def __init__(self, block_count: int, block_tokens: int) -> None:
        self.total = block_count
        self.block_tokens = block_tokens
        self._free = list(range(block_count - 1, -1, -1))
        self._references = [0] * block_count
        self._contents: list[CachedBlock | None] = [None] * block_count
        self._index: dict[bytes, CachedBlock] = {}
        self._evictable: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free) + len(self._evictable)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - self.available

    @property
    def cached(self) -> int:
        """Blocks that hold cached prefixes and can be evicted."""
        return len(self._evictable)

    def count_evictable(self, contents: Iterable[CachedBlock]) -> int:
        """Counts those of the cached blocks that nobody holds: using them takes them out of what is available."""
        return sum(1 for content in contents if content.block_id in self._evictable)

    def allocate(self, count: int) -> list[int] | None:
        """Hands out blocks with one reference each, evicting the least recently used; all or none."""
        if count > self.available:
            return None
        taken = []
        for _ in range(count):
            block_id = self._free.pop() if self._free else self._evict()
            self._references[block_id] = 1
            taken.append(block_id)
        return taken

    def _evict(self) -> int:
        block_id, _ = self._evictable.popitem(last=False)
        content = self._contents[block_id]
        assert content is not None
        del self._index[content.key]
        self._contents[block_id] = None
        return block_id

    def take(self, block_ids: Iterable[int]) -> None:
        """Adds a reference to each block; it must be held or cached."""
        for block_id in block_ids:
            assert self._references[block_id] > 0 or block_id in self._evictable
            self._references[block_id] += 1
            self._evictable.pop(block_id, None)

    def release(self, block_ids: Sequence[int]) -> None:
        """Drops a reference of each block; of a chain the last block will be evicted first."""
        for block_id in reversed(block_ids):
            self._references[block_id] -= 1
            assert self._references[block_id] >= 0
            if self._references[block_id] > 0:
                continue
            if self._contents[block_id] is None:
                self._free.append(block_id)
            else:
                self._evictable[block_id] = None

    def register(self, block_id: int, key: bytes, tokens: tuple[int, ...], parent: CachedBlock | None) -> CachedBlock:
        """Makes a full, computed block findable; where its key is taken, the block stays private."""
        assert self._references[block_id] > 0
        known = self._index.get(key)
        if known is not None and known.tokens == tokens and is_same_chain(known.parent, parent):
            return known
        content = CachedBlock(key, tokens, parent, block_id)
        if known is None and self._contents[block_id] is None:
            self._index[key] = content
            self._contents[block_id] = content
        return content

    def match(self, keys: Sequence[bytes], tokens: Sequence[int], limit: int) -> list[CachedBlock]:
        """Finds the longest cached prefix of at most so many blocks; a key counts only if its tokens do."""
        size = self.block_tokens
        matched: list[CachedBlock] = []
        parent: CachedBlock | None = None
        for index in range(limit):
            content = self._index.get(keys[index])
            if content is None or content.tokens != tuple(tokens[index * size : (index + 1) * size]):
                break
            if not is_same_chain(content.parent, parent):
                break
            matched.append(content)
            parent = content
        return matched

    def check_integrity(self) -> None:
        """Raises AssertionError unless every block is accounted for exactly once."""
        held = {block_id for block_id, count in enumerate(self._references) if count > 0}
        free, evictable = set(self._free), set(self._evictable)
        assert len(free) == len(self._free), "a block is free twice"
        assert not held & (free | evictable), "a held block is free or evictable"
        assert not free & evictable, "a free block is evictable"
        assert len(held) + len(free) + len(evictable) == self.total, "a block is lost"
        assert all(self._contents[block_id] is not None for block_id in evictable), "an evictable block holds nothing"
        assert all(self._contents[block_id] is None for block_id in free), "a free block is still cached"
        assert all(self._contents[content.block_id] is content for content in self._index.values()), "a stale key"

    def is_idle(self) -> bool:
        """Tells whether nobody holds a block."""
        return self.available == self.total
