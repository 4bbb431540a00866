"""A server of Temporal on PostgreSQL, built from its source: how it stores in production.

It needs Go, and a PostgreSQL with the extension btree_gin, which the embedded one does not have.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from bench.environment import Unavailable, go_peer, output, run_command
from bench.nginx import free_port
from bench.temporal_server import Temporal, memory
from bench.temporal_store import PostgresStore
from penstock.integrations.temporal.dev_server import DevServer

LOOPBACK: Final = "127.0.0.1"
ACCOUNT: Final = "postgres"  # PostgreSQL refuses to run as root.
USER: Final = "temporal"
PLUGIN: Final = "postgres12"
NAMESPACE: Final = "default"
RETENTION: Final = timedelta(days=1)
READY_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.5
SHARDS: Final = 4
CONNECTIONS: Final = 20
# The names of the databases, and of the schemas that the tool of the server has for them.
SCHEMAS: Final = {"temporal": "temporal", "temporal_visibility": "visibility"}
LOW_PORTS: Final = (20_000, 32_000)  # The server stores them as smallint.
DYNAMIC: Final = "dynamic.yaml"
SERVICES: Final = ("frontend", "history", "matching", "worker")


@contextlib.asynccontextmanager
async def temporal_on_postgres(
    *, dynamic_config: Mapping[str, int] | None = None
) -> AsyncGenerator[Temporal]:
    """Run a server on a PostgreSQL of its own, and connect to it. Raises Unavailable."""
    tools = find_postgres()
    binaries = await asyncio.to_thread(go_peer)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=memory()) as name:
        folder = Path(name)
        _write_dynamic_config(folder, dynamic_config or {})
        with _postgres(tools, folder) as port:
            for database in SCHEMAS:
                await asyncio.to_thread(_make_schema, binaries / "sql", port, database)
            async with _server(binaries / "server", folder, port) as server:
                client = await _connected(server)
                dsns = [f"postgresql://{USER}@{LOOPBACK}:{port}/{each}" for each in SCHEMAS]
                yield Temporal(server=server, client=client, store=PostgresStore(dsns))


def find_postgres() -> Path:
    """Return the folder of the programs of a PostgreSQL that has btree_gin."""
    folder = output(("pg_config", "--bindir")).strip()
    shared = output(("pg_config", "--sharedir")).strip()
    if not shared or not (Path(folder) / "initdb").exists():
        raise Unavailable("needs pg_config and the server of PostgreSQL, not found on this machine")
    if not (Path(shared) / "extension" / "btree_gin.control").exists():
        raise Unavailable("needs a PostgreSQL with btree_gin (on Debian: postgresql-contrib)")
    return Path(folder)


@contextlib.contextmanager
def _postgres(tools: Path, folder: Path) -> Generator[int]:
    """Run a PostgreSQL while the body runs; yield its port."""
    data, port = folder / "data", free_port()
    folder.chmod(0o755)  # Another account has to reach what is in it.
    data.mkdir()
    as_account: tuple[str, ...] = ()
    if os.geteuid() == 0:
        shutil.chown(data, ACCOUNT)
        as_account = ("runuser", "-u", ACCOUNT, "--")
    options = f"-p {port} -h {LOOPBACK} -k {data} -c max_connections=200"
    control = (*as_account, str(tools / "pg_ctl"), "-D", str(data))
    run_command((*as_account, str(tools / "initdb"), "-D", str(data), "-U", USER, "-A", "trust"))
    run_command((*control, "-l", str(data / "log"), "-o", options, "-w", "start"))
    try:
        yield port
    finally:
        run_command((*control, "-m", "immediate", "-w", "stop"))


def _make_schema(tool: Path, port: int, database: str) -> None:
    place = ("--plugin", PLUGIN, "--ep", LOOPBACK, "-p", str(port), "-u", USER, "--db", database)
    schema = f"postgresql/v12/{SCHEMAS[database]}"
    run_command((str(tool), *place, "create-database"))
    run_command((str(tool), *place, "setup-schema", "-v", "0.0"))
    run_command((str(tool), *place, "update-schema", "--schema-name", schema))


def _write_dynamic_config(folder: Path, dynamic_config: Mapping[str, int]) -> None:
    values = {key: [{"value": value}] for key, value in dynamic_config.items()}
    (folder / DYNAMIC).write_text(json.dumps(values))


@contextlib.asynccontextmanager
async def _server(binary: Path, folder: Path, port: int) -> AsyncGenerator[DevServer]:
    frontend = _low_port()
    (folder / "config").mkdir()
    dynamic = {"filepath": str(folder / DYNAMIC), "pollInterval": "60s"}
    # JSON is YAML too.
    config = json.dumps({**_config(port, frontend), "dynamicConfigClient": dynamic})
    (folder / "config" / "bench.yaml").write_text(config)
    command = (str(binary), "--root", str(folder), "--config", "config", "--env", "bench", "start")
    with (folder / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield DevServer(pid=process.pid, target=f"{LOOPBACK}:{frontend}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _config(port: int, frontend: int) -> dict[str, Any]:
    def store(database: str) -> dict[str, Any]:
        return {
            "sql": {
                "pluginName": PLUGIN,
                "databaseName": database,
                "connectAddr": f"{LOOPBACK}:{port}",
                "connectProtocol": "tcp",
                "user": USER,
                "maxConns": CONNECTIONS,
                "maxIdleConns": CONNECTIONS,
                "maxConnLifetime": "1h",
            }
        }

    def service(name: str) -> dict[str, Any]:
        grpc = frontend if name == "frontend" else _low_port()
        return {"rpc": {"grpcPort": grpc, "membershipPort": _low_port(), "bindOnLocalHost": True}}

    own = {
        "enabled": True,
        "initialFailoverVersion": 1,
        "rpcName": "frontend",
        "rpcAddress": f"{LOOPBACK}:{frontend}",
    }
    executions, listed = SCHEMAS
    return {
        "log": {"stdout": True, "level": "error"},
        "persistence": {
            "defaultStore": "executions",
            "visibilityStore": "listed",
            "numHistoryShards": SHARDS,
            "datastores": {"executions": store(executions), "listed": store(listed)},
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": LOOPBACK}},
        "services": {name: service(name) for name in SERVICES},
        "clusterMetadata": {
            "enableGlobalNamespace": False,
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {"active": own},
        },
        "publicClient": {"hostPort": f"{LOOPBACK}:{frontend}"},
        "dcRedirectionPolicy": {"policy": "noop"},
    }


def _low_port() -> int:
    """Return a port that nobody listens on; nearly never the same one twice."""
    while True:
        port = random.randint(*LOW_PORTS)
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


async def _connected(server: DevServer) -> Client:
    """Return a client once the server answers and has its namespace."""
    deadline = asyncio.get_running_loop().time() + READY_SECONDS_MAX
    while True:
        try:
            client = await Client.connect(server.target)
            await _register(client)
            await client.count_workflows()
        except (RPCError, RuntimeError) as refused:
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(f"the server does not start: {refused}") from refused
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return client


async def _register(client: Client) -> None:
    retention = Duration(seconds=int(RETENTION.total_seconds()))
    request = RegisterNamespaceRequest(
        namespace=NAMESPACE, workflow_execution_retention_period=retention
    )
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as refused:
        if refused.status != RPCStatusCode.ALREADY_EXISTS:
            raise
