import asyncio

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server

from services.common.health import Health

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def health_and_stub(tmp_path):
    health = Health(["a.v1.Mill"])
    server = grpc.aio.server()
    add_HealthServicer_to_server(health, server)
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
        yield health, HealthStub(channel)
    await server.stop(None)


@pytest.mark.parametrize("service", ["", "a.v1.Mill"])
async def test_a_check_tells_the_present_state(health_and_stub, service):
    health, stub = health_and_stub
    request = HealthCheckRequest(service=service)

    assert (await stub.Check(request)).status == NOT_SERVING
    health.set_serving(True)
    assert (await stub.Check(request)).status == SERVING
    health.set_serving(False)
    assert (await stub.Check(request)).status == NOT_SERVING


async def test_a_service_that_is_not_here_is_not_found(health_and_stub):
    _, stub = health_and_stub

    with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
        await stub.Check(HealthCheckRequest(service="a.v1.Else"))
    watch = stub.Watch(HealthCheckRequest(service="a.v1.Else"))
    assert (await watch.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


async def test_a_watch_tells_every_change_and_ends_at_the_close(health_and_stub):
    health, stub = health_and_stub
    watch = stub.Watch(HealthCheckRequest())

    async with asyncio.timeout(5):
        assert (await watch.read()).status == NOT_SERVING
        health.set_serving(True)
        assert (await watch.read()).status == SERVING
        health.set_serving(True)
        health.set_serving(False)
        health.close()
        assert (await watch.read()).status == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="shutting down"):
            await watch.read()


async def test_watchers_that_do_not_read_hold_up_nobody(health_and_stub):
    health, stub = health_and_stub
    idle = [stub.Watch(HealthCheckRequest()) for _ in range(20)]
    for watch in idle:
        await watch.read()

    for _ in range(100):
        health.set_serving(True)
        health.set_serving(False)
    health.set_serving(True)

    async with asyncio.timeout(5):
        assert (await stub.Check(HealthCheckRequest())).status == SERVING
    for watch in idle:
        watch.cancel()
