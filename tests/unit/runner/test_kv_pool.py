"""The pool gives back what was written, in the layout that the second-level cache relies on."""

import threading

import numpy as np
import pytest
import torch

from services.runner.kv_pool import KvPool, LayerShape, PoolLayout, block_bytes_of

EQUAL = [LayerShape(layer, 2, 8, 8) for layer in range(3)]
MIXED = [LayerShape(0, 2, 8, 8), LayerShape(1, 1, 24, 12), LayerShape(2, 4, 4, 8)]
BLOCK_TOKENS = 4


def make_pool(shapes: list[LayerShape], dtype: torch.dtype = torch.float32) -> KvPool:
    """Returns a small pool."""
    return KvPool(shapes, PoolLayout(6, BLOCK_TOKENS, dtype, torch.device("cpu")))


def states(shape: LayerShape, tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns random keys and values of a layer."""
    key = torch.randn(tokens, shape.kv_heads, shape.key_size).to(dtype)
    return key, torch.randn(tokens, shape.kv_heads, shape.value_size).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shapes", [EQUAL, MIXED], ids=["equal layers", "mixed layers"])
def test_gathered_blocks_hold_what_was_written(shapes: list[LayerShape], dtype: torch.dtype) -> None:
    pool = make_pool(shapes, dtype)
    # Ten tokens in blocks 5, 0 and 3.
    positions = np.arange(10)
    blocks = np.array([5, 0, 3])
    index = pool.row_index(blocks[positions // BLOCK_TOKENS], positions % BLOCK_TOKENS)
    written = {shape.layer: states(shape, 10, dtype) for shape in shapes}
    for layer, (key, value) in written.items():
        pool.write(layer, index, key, value)
    for layer, (key, value) in written.items():
        found_key, found_value = pool.gather(layer, pool.page_index(blocks))
        assert torch.equal(found_key[:10], key)
        assert torch.equal(found_value[:10], value)
        assert not found_key[10:].any()


@pytest.mark.parametrize("shapes", [EQUAL, MIXED], ids=["equal layers", "mixed layers"])
def test_a_block_is_read_layer_by_layer_keys_first_token_by_token(shapes: list[LayerShape]) -> None:
    pool = make_pool(shapes)
    index = pool.row_index(np.full(BLOCK_TOKENS, 2), np.arange(BLOCK_TOKENS))
    expected = b""
    for shape in shapes:
        key, value = states(shape, BLOCK_TOKENS, torch.float32)
        pool.write(shape.layer, index, key, value)
        expected += key.numpy().tobytes() + value.numpy().tobytes()
    out = bytearray(pool.block_bytes)
    pool.read_block(2, memoryview(out))
    assert pool.block_bytes == block_bytes_of(shapes, BLOCK_TOKENS, torch.float32) == len(expected)
    assert bytes(out) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_written_from_another_thread_is_the_block_that_was_read(dtype: torch.dtype) -> None:
    source, target = make_pool(MIXED, dtype), make_pool(MIXED, dtype)
    index = source.row_index(np.full(BLOCK_TOKENS, 1), np.arange(BLOCK_TOKENS))
    for shape in MIXED:
        source.write(shape.layer, index, *states(shape, BLOCK_TOKENS, dtype))
    payload = bytearray(source.block_bytes)
    source.read_block(1, memoryview(payload))
    writer = threading.Thread(target=lambda: target.write_block(4, memoryview(bytes(payload))))
    writer.start()
    writer.join()
    for shape in MIXED:
        for theirs, ours in zip(
            [part.clone() for part in source.gather(shape.layer, source.page_index(np.array([1])))],
            target.gather(shape.layer, target.page_index(np.array([4]))),
            strict=True,
        ):
            assert torch.equal(theirs, ours)


def test_a_cleared_block_is_all_zeros_and_its_neighbours_are_untouched() -> None:
    pool = make_pool(EQUAL)
    index = pool.row_index(np.repeat([1, 2], BLOCK_TOKENS), np.tile(np.arange(BLOCK_TOKENS), 2))
    for shape in EQUAL:
        pool.write(shape.layer, index, *(part + 10 for part in states(shape, 2 * BLOCK_TOKENS, torch.float32)))
    pool.clear_blocks([1])
    out = bytearray(pool.block_bytes)
    pool.read_block(1, memoryview(out))
    assert not any(out)
    pool.read_block(2, memoryview(out))
    assert np.frombuffer(bytes(out), dtype=np.float32).all()
