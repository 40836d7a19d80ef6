"""A kvstore that keeps its index in memory, and can hang: the process edge of the scheduler's second level."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from headrace.v1 import kvstore_pb2 as pb
from headrace.v1.kvstore_pb2_grpc import KvStoreServiceServicer, add_KvStoreServiceServicer_to_server


class MemoryKvStore(KvStoreServiceServicer):
    """Grants what nobody has stored, finds what was committed."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, bytes], tuple[str, int]] = {}
        self.leases: dict[int, tuple[str, str, list[bytes]]] = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.lookups = 0
        self.offers: list[list[bytes]] = []
        self.busy_answers = 0
        """Leases to be refused without saying that anything is stored."""
        self.given_back: list[int] = []

    async def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:  # type: ignore[override]
        """Finds a leading part of the chain."""
        self.lookups += 1
        await self.answers.wait()
        runs = []
        for key in request.block_keys:
            found = self.stored.get((request.tenant_namespace, key))
            if found is None:
                break
            runs.append(pb.StoredRun(value_key=found[0], first_index=found[1], blocks=1))
        return pb.LookupResponse(runs=runs, integrity_key=b"secret")

    async def Lease(self, request: pb.LeaseRequest, context: Any) -> pb.LeaseResponse:  # type: ignore[override]
        """Grants everything from the first unknown block on, as one value."""
        self.offers.append(list(request.block_keys))
        await self.answers.wait()
        keys = list(request.block_keys)
        if self.busy_answers:
            self.busy_answers -= 1
            return pb.LeaseResponse(integrity_key=b"secret", degraded_reason="TOO_MANY_LEASES")
        while keys and (request.tenant_namespace, keys[0]) in self.stored:
            keys.pop(0)
        if not keys:
            return pb.LeaseResponse(integrity_key=b"secret")
        lease_id = len(self.leases) + 1
        value_key = f"value-{lease_id}"
        self.leases[lease_id] = (request.tenant_namespace, value_key, keys)
        first = len(request.block_keys) - len(keys)
        grant = pb.Grant(
            lease_id=lease_id, value_key=value_key, first_block=first, blocks=len(keys), value_expiry_seconds=60
        )
        return pb.LeaseResponse(grants=[grant], integrity_key=b"secret")

    async def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:  # type: ignore[override]
        """Makes a value findable."""
        namespace, value_key, keys = self.leases[request.lease_id]
        if request.is_stored:
            self.stored.update({(namespace, key): (value_key, index) for index, key in enumerate(keys)})
        else:
            self.given_back.append(request.lease_id)
        return pb.CommitResponse(is_visible=request.is_stored)


@asynccontextmanager
async def memory_kvstore(folder: Path) -> AsyncIterator[tuple[str, MemoryKvStore]]:
    """Serves one; yields its address and itself."""
    store, server = MemoryKvStore(), grpc.aio.server()
    add_KvStoreServiceServicer_to_server(store, server)
    address = f"unix:{folder}/kvstore.sock"
    server.add_insecure_port(address)
    await server.start()
    try:
        yield address, store
    finally:
        store.answers.set()
        await server.stop(0)
