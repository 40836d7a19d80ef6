"""A kvstore that starts finds what Redis still holds, beside its serving."""

import hashlib
import time
from contextlib import AsyncExitStack
from pathlib import Path

from byte_pool import load_order, publish_order
from kvstore_harness import BLOCKS, chain, serving, store_chain, transfers, until
from valkey_server import ValkeyServer

from services.common.value_header import TAG_BYTES, encode_head
from services.kvstore.index import StoredValue
from services.runner.l2.orders import Outcome


async def test_a_restarted_kvstore_finds_what_redis_holds(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url) as kvstore:
        await store_chain(kvstore, valkey)
        before = await kvstore.usage()
    valkey.command("SET", "headrace:1:" + "a" * 32 + ":" + "b" * 24, "no value of ours")
    valkey.command("HSET", "headrace:1:" + "a" * 32 + ":" + "c" * 24, "field", "nor this")
    valkey.command("SET", "headrace:1:odd", "x" * 5000)
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return await kvstore.hits() == BLOCKS

        await until(is_found)
        assert await kvstore.usage() == before
        assert kvstore.store.index.totals.values == 1
        (run,), key = (response := await kvstore.look_up()).runs, response.integrity_key
        async with transfers(valkey) as (_, carry_out):
            order = load_order(range(BLOCKS), 10, value_key=run.value_key, integrity_key=key)
            assert (await carry_out("submit_load", order)).outcome is Outcome.DONE


async def test_a_value_that_a_rebuild_meets_before_its_commit_is_visible_all_the_same(
    valkey: ValkeyServer, folder: Path
) -> None:
    async with serving(folder, valkey.url) as kvstore:
        response = await kvstore.lease()
        (grant,) = response.grants
        namespace = grant.value_key.split(":")[2]
        met = StoredValue(grant.value_key, namespace, tuple(chain()), 100, time.monotonic() + 60)
        assert kvstore.store.index.add(met)

        assert await kvstore.commit(grant.lease_id, stored_bytes=100)


async def test_a_truncated_value_is_not_found_again_after_a_restart(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url) as kvstore:
        whole, cut = await store_chain(kvstore, valkey), await store_chain(kvstore, valkey, tenant="b")
        key = cut.grants[0].value_key
        valkey.command("SET", key, valkey.command("GET", key)[:-1])
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return kvstore.store.index.has_value(whole.grants[0].value_key)

        await until(is_found)
        assert await kvstore.hits("b") == 0


async def test_many_values_are_found_again_while_it_serves(valkey: ValkeyServer, folder: Path) -> None:
    """Several scans and batches; lookups are answered meanwhile."""
    numbers = range(16)
    async with AsyncExitStack() as stack:
        kvstore = await stack.enter_async_context(serving(folder, valkey.url))
        _, carry_out = await stack.enter_async_context(transfers(valkey))
        for tenant in range(300):
            keys = [hashlib.sha256(b"%d %d" % (tenant, number)).digest() for number in numbers]
            response = await kvstore.lease(keys, tenant=f"t{tenant}")
            (grant,) = response.grants
            order = publish_order(numbers, value_key=grant.value_key, integrity_key=response.integrity_key)
            await carry_out("submit_publish", order)
    valkey.command("MSET", *(word for number in range(5000) for word in (f"of somebody else:{number}", "x")))
    async with serving(folder, valkey.url) as kvstore:

        async def is_complete() -> bool:
            began = time.perf_counter()
            await kvstore.look_up()
            assert time.perf_counter() - began < 0.5
            return kvstore.store.index.totals.values == 300

        await until(is_complete)


async def test_a_head_beyond_the_first_read_is_found_again_whole(valkey: ValkeyServer, folder: Path) -> None:
    keys = chain(*range(200))
    async with serving(folder, valkey.url) as kvstore:
        (grant,) = (await kvstore.lease(keys)).grants
        assert grant.blocks == 200
        head = encode_head(grant.value_key, "float32", "layout", 16, keys, range(800))
        valkey.command("SET", grant.value_key, head + bytes(200 * 16 + TAG_BYTES))
    async with serving(folder, valkey.url) as kvstore:

        async def is_found() -> bool:
            return [run.blocks for run in (await kvstore.look_up(keys)).runs] == [200]

        await until(is_found)
