"""How many blocks the KV cache gets."""

from dataclasses import dataclass

from services.common.config import ConfigError

# The check at start computes two short sequences.
FEWEST_BLOCKS = 8
_PART_OF_FREE_MEMORY = 0.25
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PoolWish:
    """What bears on the size of a pool."""

    kv_cache_mib: int | None
    """As configured; None: choose."""
    free_bytes: int
    block_bytes: int
    block_tokens: int
    sequence_slots: int
    context_length: int


def count_blocks(wish: PoolWish) -> int:
    """Returns the number of blocks; raises ConfigError if there is room for too few."""
    if wish.kv_cache_mib is None:
        useful = wish.sequence_slots * -(-wish.context_length // wish.block_tokens)
        blocks = min(int(wish.free_bytes * _PART_OF_FREE_MEMORY) // wish.block_bytes, useful)
    else:
        blocks = wish.kv_cache_mib * _MIB // wish.block_bytes
        if blocks * wish.block_bytes > wish.free_bytes:
            raise ConfigError(
                f"HEADRACE_RUNNER_KV_CACHE_MIB={wish.kv_cache_mib} is more than the {wish.free_bytes // _MIB} MiB that "
                "are free; give less"
            )
    if blocks < FEWEST_BLOCKS:
        needed = -(-FEWEST_BLOCKS * wish.block_bytes // _MIB)
        raise ConfigError(
            f"the KV cache would have {blocks} blocks of {wish.block_bytes} bytes, and {FEWEST_BLOCKS} are the least; "
            f"set HEADRACE_RUNNER_KV_CACHE_MIB to {needed} or more, or free memory"
        )
    return blocks
