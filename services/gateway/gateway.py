"""One gateway, put together: what it is made of, how it starts and how it stops."""

import asyncio

import structlog

from headrace.v1 import admin_pb2_grpc, inference_pb2_grpc
from services.common.bind import require_safe_bind
from services.common.config import ProcessConfig
from services.common.model_folder import find_model, read_config, served_name, tokenizer_digest
from services.common.process import GrpcServer, serve_metrics
from services.gateway.admin_servicer import AdminServicer
from services.gateway.admission import Admission
from services.gateway.authentication import load_authentication
from services.gateway.config import GatewayConfig
from services.gateway.defaults import load_defaults
from services.gateway.directory_poller import DirectoryPoller
from services.gateway.generation import Generation, GenerationParts
from services.gateway.http.app import create_app
from services.gateway.http.server import HttpServer
from services.gateway.metrics import GatewayMetrics
from services.gateway.model_directory import ModelDirectory
from services.gateway.open_requests import OpenRequests
from services.gateway.readiness import Readiness
from services.gateway.scheduler_client import SchedulerClient
from services.gateway.servicer import InferenceServicer
from services.gateway.tokenizer import load_tokenizer

log = structlog.get_logger()

_HEALTH_SECONDS = 0.1
_ADMIN_GRACE_SECONDS = 1.0


class Gateway:
    """Builds every part from the configuration. Must be made and used in one event loop."""

    def __init__(self, config: GatewayConfig, process: ProcessConfig) -> None:
        self._config = config
        self._process = process
        self._check_addresses()
        folder = find_model(config.model, with_weights=False)
        read_config(folder)  # refuses a folder that is no model, or that brings code
        digest = tokenizer_digest(folder)
        defaults = load_defaults(folder)
        if defaults.ignored:
            log.warning("generation_config.json asks for what this version does not do", ignored=defaults.ignored)
        self._metrics = GatewayMetrics()
        self._scheduler = SchedulerClient(config.scheduler, process.cluster_token)
        self._directory = ModelDirectory(served_name(config.model, config.model_name), digest)
        self._poller = DirectoryPoller(self._scheduler, self._directory, config.poll_seconds)
        self._open_requests = OpenRequests()
        self._authentication = load_authentication(config.api_keys_file)
        self._admission = Admission(load_tokenizer(folder), digest, defaults, self._directory, self._poller)
        self.readiness = Readiness(lambda: self._directory.not_ready_reason)
        self.generation = Generation(
            GenerationParts(
                admission=self._admission,
                scheduler=self._scheduler,
                open_requests=self._open_requests,
                metrics=self._metrics,
                request_seconds=config.request_seconds,
            )
        )
        self._public = self._public_server()
        self._admin = self._admin_server()
        app = create_app(self.generation, self._authentication, self.readiness)
        self._http = HttpServer(app, [config.http_listen])
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def http_port(self) -> int:
        """Returns the port that serves HTTP, also where 0 was asked for."""
        return self._http.ports[0]

    async def start(self) -> None:
        """Opens every port; ready is what health says then, not what having started means."""
        self._stop_metrics = serve_metrics(self._config.metrics_listen, self._metrics.registry)
        await self._admin.start([self._config.admin_listen])
        await self._admin.set_serving(True)
        await self._public.start(self._config.listen)
        await self._http.start()
        self._tasks = [asyncio.create_task(self._poller.run()), asyncio.create_task(self._follow_readiness())]
        log.info(
            "gateway started",
            model=self._directory.default_name,
            listen=self._config.listen,
            http_listen=self._config.http_listen,
            scheduler=self._config.scheduler,
            authenticates=self._authentication.is_required,
        )

    async def stop(self) -> None:
        """Says that it is going, lets running requests finish, then closes what is open."""
        self.readiness.start_draining()
        await self._public.set_serving(False)
        log.info("shutting down", open_requests=len(self._open_requests), drain_seconds=self._process.drain_seconds)
        drain = self._process.drain_seconds
        await asyncio.gather(self._public.stop(drain), self._http.stop(drain))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.stop(_ADMIN_GRACE_SECONDS)
        await self._scheduler.close()
        self._admission.tokenizing.close()
        self._stop_metrics()

    async def _follow_readiness(self) -> None:
        while True:
            await self._public.set_serving(self.readiness.is_ready)
            await asyncio.sleep(_HEALTH_SECONDS)

    def _public_server(self) -> GrpcServer:
        server = GrpcServer(self._process, ["headrace.v1.InferenceService"], is_internal=False)
        servicer = InferenceServicer(self.generation, self._authentication)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(servicer, server.server)
        return server

    def _admin_server(self) -> GrpcServer:
        server = GrpcServer(self._process, ["headrace.v1.AdminService"], is_internal=True)
        servicer = AdminServicer(self.readiness, self._open_requests, lambda: self._poller.loads)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server.server)
        return server

    def _check_addresses(self) -> None:
        insecure = self._process.allow_insecure_bind
        require_safe_bind(
            [*self._config.listen, self._config.http_listen],
            is_authenticated=self._config.api_keys_file is not None,
            allow_insecure=insecure,
            way_out="set HEADRACE_GATEWAY_API_KEYS_FILE",
        )
        require_safe_bind(
            [self._config.admin_listen],
            is_authenticated=bool(self._process.cluster_token),
            allow_insecure=insecure,
            way_out="set HEADRACE_PROCESS_CLUSTER_TOKEN",
        )
