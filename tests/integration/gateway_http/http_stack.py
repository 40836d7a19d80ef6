"""A real gateway and a real scheduler with a scripted runner, and OpenAI's own client in front of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
from polling import until
from scheduler_process import LocalScheduler, local_scheduler
from scripted_engine import Script
from scripted_runner import ScriptedRunner, scripted_hello
from tokenizer_folder import byte_level, write_folder

from services.common.config import ProcessConfig
from services.common.model_folder import tokenizer_digest
from services.gateway.config import GatewayConfig
from services.gateway.gateway import Gateway
from services.scheduler.config import SchedulerConfig

MODEL = "tiny"
CONTEXT = 256
EOS_ID, FIRST_BYTE_ID = 1, 4
VOCABULARY = 260
CHAT = [{"role": "user", "content": "hi"}]


def saying(text: str, *, repeats: bool = False, on_token: Callable[[str, int], None] | None = None) -> Script:
    """Returns a script that answers every request with this text, byte by byte, and then ends it.

    Tells on_token about every token before it is made: the request's id and the token's position in the answer.
    """
    said = text.encode()
    prompt_tokens: dict[str, int] = {}

    def script(request_id: str, known: list[int]) -> int:
        position = len(known) - prompt_tokens.setdefault(request_id, len(known))
        if on_token is not None:
            on_token(request_id, position)
        if repeats:
            position %= len(said)
        return FIRST_BYTE_ID + said[position] if position < len(said) else EOS_ID

    return script


def tiny_runner(scheduler: str, model: Path, script: Script) -> ScriptedRunner:
    """Returns a runner that claims to serve the model's folder."""
    hello = scripted_hello(
        context_length=CONTEXT,
        vocabulary_size=VOCABULARY,
        eos_token_ids=[EOS_ID],
        model_name=MODEL,
        tokenizer_digest=tokenizer_digest(model),
    )
    return ScriptedRunner(scheduler, hello, script)


@dataclass
class HttpStack:
    """A running deployment."""

    scheduler: LocalScheduler
    gateway: Gateway
    runner: ScriptedRunner | None
    port: int
    model: Path

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def client(self, api_key: str = "none") -> AsyncIterator[openai.AsyncOpenAI]:
        """OpenAI's client, without its retries."""
        async with (
            httpx.AsyncClient(trust_env=False) as http_client,
            openai.AsyncOpenAI(
                base_url=f"{self.url}/v1", api_key=api_key, max_retries=0, timeout=20, http_client=http_client
            ) as client,
        ):
            yield client

    def held_blocks(self) -> int:
        """Counts the blocks that requests hold on all runners."""
        return sum(session.pool.used for session in self.scheduler.parts.fleet.sessions)


@asynccontextmanager
async def http_stack(
    folder: Path,
    script: Script | None,
    *,
    queue_limit: int = 1024,
    api_keys_file: str | None = None,
) -> AsyncIterator[HttpStack]:
    """Runs a deployment; without a script no runner attaches."""
    model = write_folder(folder / MODEL, byte_level())
    async with AsyncExitStack() as stack:
        # A busy machine may hold the one event loop of all three up for a while.
        settings = SchedulerConfig(kvstore=None, queue_limit=queue_limit, missed_heartbeats=60)
        scheduler = await stack.enter_async_context(local_scheduler(folder, settings))
        config = GatewayConfig(
            model=str(model),
            listen=("127.0.0.1:0",),
            http_listen="127.0.0.1:0",
            admin_listen="127.0.0.1:0",
            metrics_listen="127.0.0.1:0",
            scheduler=scheduler.address,
            api_keys_file=api_keys_file,
            poll_seconds=0.05,
        )
        # Before the runner attaches: loading a tokenizer holds the loop up for longer than heartbeats may be missing.
        gateway = Gateway(config, ProcessConfig(reflection=False, drain_seconds=0.1))
        runner = None
        if script is not None:
            runner = await stack.enter_async_context(tiny_runner(scheduler.address, model, script))
            await runner.attached.wait()
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        await until(lambda: gateway.readiness.is_ready or runner is None, 10)
        yield HttpStack(scheduler, gateway, runner, gateway._http.ports[0], model)
