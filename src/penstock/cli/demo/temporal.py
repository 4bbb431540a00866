"""The demo on Temporal: a development server, its workers, and the runs in its own list."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client

from penstock.cli.demo.tally import Tally
from penstock.cli.errors import TemporalServerMissing
from penstock.domains.payments.temporal.models import PAYMENT_EXEC
from penstock.integrations.temporal.dev_server import dev_server, find_command
from penstock.integrations.temporal.errors import translated
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

USE_TEMPORAL = statement(__package__, "use_temporal.sql")

ENDED = f"WorkflowType = '{PAYMENT_EXEC}' AND ExecutionStatus != 'Running'"
LOOK_INTERVAL = timedelta(milliseconds=500)
LIST_MAX = timedelta(seconds=60)  # Temporal writes its list some time after a workflow has ended.
PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporal:
    """A server for this demo alone. `variables` lead worker processes to it."""

    client: Client
    variables: dict[str, str]

    async def tally_runs(self, workflows: int) -> Tally:
        """Count the ended runs of each workflow id, once as many as these have ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_MAX.total_seconds()):
                await self._until_ended(workflows)
        runs = Tally()
        with translated():
            async for each in self.client.list_workflows(ENDED, page_size=PAGE):
                runs.note(each.id)
        return runs

    async def _until_ended(self, workflows: int) -> None:
        while True:
            with translated():
                ended = await self.client.count_workflows(ENDED)
            if ended.count >= workflows:
                return
            await asyncio.sleep(LOOK_INTERVAL.total_seconds())


def require_server() -> str:
    """Return the command of the server; raises TemporalServerMissing."""
    command = find_command()
    if command is None:
        raise TemporalServerMissing
    return command


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Temporal]:
    """Run a server in `folder` while the body runs."""
    async with dev_server(require_server(), folder) as server:
        # An empty file, because the person's own may name another server, with TLS.
        config = folder / "temporal.toml"
        config.touch()
        yield Temporal(
            client=await server.connect(),
            variables={
                "TEMPORAL_TARGET": server.target,
                "TEMPORAL_NAMESPACE": "default",
                "TEMPORAL_CONFIG_FILE": str(config),
            },
        )


async def use_temporal(db: Connection) -> None:
    """Execute payments on Temporal from the next claim on."""
    await db.execute(USE_TEMPORAL)
