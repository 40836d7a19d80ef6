"""The kvstore over real gRPC: what it grants, finds, counts and refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from byte_pool import IDENTITY, block_key, load_order
from kvstore_harness import BLOCKS, KvStore, chain, serving, store_chain, transfers, until
from valkey_server import ValkeyServer

from headrace.v1 import kvstore_pb2 as pb
from services.common.errors import from_rpc_error
from services.runner.l2.orders import Outcome


async def test_blocks_are_visible_only_after_the_value_is_written(kvstore: KvStore) -> None:
    (grant,) = (await kvstore.lease()).grants
    assert (grant.first_block, grant.blocks, grant.value_expiry_seconds) == (0, BLOCKS, 86_400)
    assert grant.lease_milliseconds == 10_000
    assert await kvstore.hits() == 0
    assert not (await kvstore.lease()).grants, "somebody writes them already"
    assert not await kvstore.commit(grant.lease_id, is_stored=False)
    assert await kvstore.hits() == 0
    assert (await kvstore.lease()).grants, "the right to write was given back"


async def test_a_stored_chain_is_found_and_its_bytes_verify(kvstore: KvStore, valkey: ValkeyServer) -> None:
    await store_chain(kvstore, valkey)
    response = await kvstore.look_up([*chain(), block_key(99)])
    (run,) = response.runs
    assert (run.first_index, run.blocks, response.degraded_reason) == (0, BLOCKS, "")
    async with transfers(valkey) as (pool, carry_out):
        order = load_order(range(BLOCKS), 10, value_key=run.value_key, integrity_key=response.integrity_key)
        assert (await carry_out("submit_load", order)).outcome is Outcome.DONE
        assert pool.blocks[10 : 10 + BLOCKS] == pool.blocks[:BLOCKS]
    usage = await kvstore.usage()
    assert (usage.blocks, usage.values, usage.bytes) == (BLOCKS, 1, BLOCKS * IDENTITY.block_bytes)


async def test_large_chains_become_values_of_the_configured_size(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, value_mib=3 * IDENTITY.block_bytes / 2**20) as kvstore:
        response = await store_chain(kvstore, valkey)
        assert [(grant.first_block, grant.blocks) for grant in response.grants] == [(0, 3), (3, 3), (6, 2)]
        runs = (await kvstore.look_up()).runs
        assert [(run.first_index, run.blocks) for run in runs] == [(0, 3), (0, 3), (0, 2)]
        valkey.command("DEL", runs[1].value_key)
        assert await kvstore.hits() == 3, "what lies behind a gap is of no use"
        assert [grant.first_block for grant in (await kvstore.lease()).grants] == [3]


async def test_two_tenants_never_meet(kvstore: KvStore, valkey: ValkeyServer) -> None:
    """KV-1: not by keys, not by namespaces, not by integrity keys."""
    stored = await store_chain(kvstore, valkey, tenant="a")
    assert await kvstore.hits("b") == 0
    other = await kvstore.lease(tenant="b")
    assert len(other.grants) == 1
    assert other.integrity_key != stored.integrity_key
    assert other.grants[0].value_key.split(":")[2] != stored.grants[0].value_key.split(":")[2]
    assert (await kvstore.usage("b")).blocks == 0
    async with transfers(valkey) as (pool, carry_out):
        order = load_order(range(BLOCKS), 10, value_key=stored.grants[0].value_key, integrity_key=other.integrity_key)
        assert (await carry_out("submit_load", order)).outcome is Outcome.CORRUPT
        assert pool.written == []


async def test_flushed_and_evicted_values_are_no_hits_and_leave_the_index(
    kvstore: KvStore, valkey: ValkeyServer
) -> None:
    await store_chain(kvstore, valkey)
    valkey.command("FLUSHALL")
    response = await kvstore.look_up()
    assert (list(response.runs), response.degraded_reason) == ([], "")
    assert (await kvstore.usage()).values == 0
    await store_chain(kvstore, valkey)
    assert await kvstore.hits() == BLOCKS


async def test_values_that_nobody_asks_for_leave_the_index_too(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, sweep_values_per_second=10_000) as kvstore:
        await store_chain(kvstore, valkey)
        valkey.command("FLUSHALL")

        async def is_empty() -> bool:
            return (await kvstore.usage()).blocks == 0

        await until(is_empty)


async def test_an_expired_lease_is_given_back(valkey: ValkeyServer, folder: Path) -> None:
    async with serving(folder, valkey.url, lease_seconds=0.1) as kvstore:
        (first,) = (await kvstore.lease()).grants

        async def is_granted_again() -> Any:
            return (await kvstore.lease()).grants

        await until(is_granted_again)
        assert not await kvstore.commit(first.lease_id), "its holder comes too late"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda kvstore: kvstore.look_up(tenant=""), "tenant_namespace"),
        (lambda kvstore: kvstore.look_up(tenant="x" * 257), "tenant_namespace"),
        (lambda kvstore: kvstore.look_up([b"short"]), "block_keys[0]"),
        (lambda kvstore: kvstore.lease([*chain(1), bytes(33)]), "block_keys[1]"),
        (lambda kvstore: kvstore.look_up([bytes(32)] * 65_537), "block_keys"),
        (
            lambda kvstore: kvstore.stub.Lease(pb.LeaseRequest(tenant_namespace="a", block_keys=chain())),
            "block_bytes",
        ),
        (lambda kvstore: kvstore.usage(tenant=""), "tenant_namespace"),
    ],
)
async def test_a_request_that_makes_no_sense_names_the_field(
    kvstore: KvStore, call: Callable[[KvStore], Any], field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(kvstore)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(caught.value).violations[0].field == field


async def test_what_redis_has_lost_is_granted_again_before_anybody_looks_it_up(
    valkey: ValkeyServer, folder: Path
) -> None:
    """KV-8: a runner whose load failed offers the blocks that it had to compute."""
    async with serving(folder, valkey.url, sweep_values_per_second=1) as kvstore:
        (first,) = (await store_chain(kvstore, valkey)).grants
        assert not (await kvstore.lease()).grants
        valkey.command("DEL", first.value_key)
        (again,) = (await kvstore.lease()).grants

    assert (again.first_block, again.blocks) == (0, BLOCKS)
    assert again.value_key != first.value_key


async def test_a_full_lease_table_says_so_with_what_it_could_grant(valkey: ValkeyServer, folder: Path) -> None:
    """What was left out is not stored: its runner may offer it again."""
    value_mib = IDENTITY.block_bytes / 2**20
    async with serving(folder, valkey.url, value_mib=value_mib, max_leases=3) as kvstore:
        response = await kvstore.lease()

    assert len(response.grants) == 3
    assert response.degraded_reason == "TOO_MANY_LEASES"


async def test_an_unknown_lease_is_no_error(kvstore: KvStore) -> None:
    assert not await kvstore.commit(12345)


async def test_watching_is_not_built_yet_and_says_so(kvstore: KvStore) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in kvstore.stub.WatchBlocks(pb.WatchBlocksRequest()):
            pass
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert from_rpc_error(caught.value).reason == "NOT_IMPLEMENTED"
