"""Who may call what: API keys on the public port, the cluster token on the admin port."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import grpc
from gateway_stack import collect, ids_of, refusal_of, saying, stack, text_request
from grpc_health.v1 import health_pb2, health_pb2_grpc
from polling import until

from headrace.v1 import admin_pb2, admin_pb2_grpc
from headrace.v1 import inference_pb2 as pb
from services.common.config import ProcessConfig
from services.common.grpc_options import open_channel

ENDLESS = saying([], then=ids_of(b"x")[0])


def key_file(folder: Path) -> str:
    path = folder / "keys"
    lines = [f"{tenant}:{hashlib.sha256(key.encode()).hexdigest()}" for tenant, key in (("acme", "a"), ("beta", "b"))]
    path.write_text("\n".join(lines))
    return str(path)


def key(value: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {value}"),)


async def test_every_call_needs_a_key_and_health_needs_none(tmp_path: Path) -> None:
    async with stack(saying(ids_of(b"ok")), api_keys_file=key_file(tmp_path)) as deployed:
        client: Any = deployed.client
        calls = [
            client.Generate(text_request()),
            client.StreamGenerate(text_request()),
            client.Chat(pb.ChatRequest()),
            client.StreamChat(pb.ChatRequest()),
            client.ResumeStream(pb.ResumeStreamRequest()),
            client.Cancel(pb.CancelRequest(request_id="r")),
            client.Tokenize(pb.TokenizeRequest()),
            client.Detokenize(pb.DetokenizeRequest()),
            client.ListModels(pb.ListModelsRequest()),
            client.Explain(pb.ExplainRequest()),
            client.Generate(text_request(), metadata=key("wrong")),
        ]
        for call in calls:
            refusal = await refusal_of(call)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        answer = await client.Generate(text_request(), metadata=key("a"))
        assert answer.choices[0].text == "ok"
        health: Any = health_pb2_grpc.HealthStub(deployed.channel)
        await health.Check(health_pb2.HealthCheckRequest())


async def test_tenants_share_neither_request_ids_nor_cached_prefixes(tmp_path: Path) -> None:
    async with stack(ENDLESS, api_keys_file=key_file(tmp_path)) as deployed:
        request = text_request("abcdefghij", options={"request_id": "r"}, stop={"max_tokens": 300})
        of_acme = asyncio.create_task(collect(deployed.client.StreamGenerate(request, metadata=key("a"))))
        await until(lambda: deployed.running == 1)
        cancelled = await deployed.client.Cancel(pb.CancelRequest(request_id="r"), metadata=key("b"))
        assert not cancelled.was_running
        of_beta = await deployed.client.Generate(request, metadata=key("b"))
        assert of_beta.usage.cached_tokens_l1 == 0
        await of_acme
        again = await deployed.client.Generate(request, metadata=key("a"))
        assert again.usage.cached_tokens_l1 > 0


async def test_the_admin_port_needs_the_cluster_token() -> None:
    process = ProcessConfig(reflection=False, drain_seconds=0.2, cluster_token="secret")
    async with stack(saying([]), process=process) as deployed, open_channel(deployed.admin_address) as channel:
        admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        refusal = await refusal_of(admin.GetStatus(admin_pb2.GetStatusRequest()))
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        await until(lambda: deployed.gateway.readiness.is_ready)
        assert (await admin.GetStatus(admin_pb2.GetStatusRequest(), metadata=key("secret"))).ready
