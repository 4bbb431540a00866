"""Millions of rows, copies for each file; each test works in a transaction that is rolled back."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, LiteralString, cast

import pytest

from penstock.domains.mail.lanes import LANE as MAIL_LANE
from penstock.domains.outbox.lanes import LANE as OUTBOX_LANE
from penstock.domains.payments.lanes import LANE as PAYMENT_LANE
from penstock.domains.payments.lanes import OWNER as PAYMENTS
from penstock.domains.webhooks.domain import LANE, ORDERED_LANE
from penstock.kernel.lane import create_lane
from penstock.postgres.embedded import Server, running
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import connect
from tests.conftest import FAST, SERVERS_BYTES, data_folder
from tests.database import MIGRATION_PACKAGES, copy_database, database_dsn, run_sql
from tests.plan.explain import Explainer

Rows = Literal["kernel", "domains"]
Statistics = Literal["stale", "fresh"]
COPIED = "copied"
LOADED_BYTES = 6 * 2**30  # All templates, one copy, and the log of what has filled them.
FOLDER = Path(__file__).parent
MILLION = cast("LiteralString", (FOLDER / "million.sql").read_text(encoding="utf-8"))
SLOTS = cast("LiteralString", (FOLDER / "slots.sql").read_text(encoding="utf-8"))
WEBHOOKS = cast("LiteralString", (FOLDER / "webhooks.sql").read_text(encoding="utf-8"))
MAILS = cast("LiteralString", (FOLDER / "mail.sql").read_text(encoding="utf-8"))
OUTBOX = cast("LiteralString", (FOLDER / "outbox.sql").read_text(encoding="utf-8"))
# The rows name their lanes by number, from 1 on.
WITHOUT_LANES = """
    DELETE FROM penstock.lane_pacing;
    DELETE FROM penstock.lane;
    ALTER TABLE penstock.lane ALTER COLUMN lane_id RESTART;
"""


@pytest.fixture(scope="session")
def quiet_server() -> Generator[Server]:
    """A server on which nobody gathers statistics, or frees space, unless the test says so."""
    options = {**FAST, "autovacuum": "off", "synchronous_commit": "off", "max_wal_size": "2GB"}
    with (
        data_folder(bytes_free=LOADED_BYTES + SERVERS_BYTES) as folder,
        running(folder, options=options) as started,
    ):
        yield started


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Databases that are filled or analysed once, at their first use, and copied for each file."""

    server: Server
    made: set[str] = field(default_factory=set)

    async def get(self, *, rows: Rows, statistics: Statistics) -> str:
        """Return the name of the template."""
        name = f"{rows}_{statistics}"
        if name not in self.made:
            if statistics == "fresh":
                await self._copy(await self.get(rows=rows, statistics="stale"), name)
                await run_sql(database_dsn(self.server.dsn, name), "ANALYZE")
            elif rows == "domains":
                await self._copy(await self.get(rows="kernel", statistics="stale"), name)
                await _fill_domains(database_dsn(self.server.dsn, name))
            else:
                await run_sql(self.server.dsn, f"CREATE DATABASE {name}")
                await _fill_kernel(database_dsn(self.server.dsn, name))
            self.made.add(name)
        return name

    async def _copy(self, template: str, name: str) -> None:
        await copy_database(self.server.dsn, template, name)


async def _fill_kernel(dsn: str) -> None:
    """Add millions of rows to a database that is analysed while it is empty."""
    connection = await connect(dsn)
    await migrate(connection, MIGRATION_PACKAGES)
    await connection.execute(WITHOUT_LANES)
    await create_lane(connection, "big", who="test")
    await create_lane(connection, "line", who="test", ordering="per_key", on_dead_head="park")
    await create_lane(connection, "quiet", who="test")
    await create_lane(connection, LANE, who="test", owner="webhooks")
    await create_lane(connection, ORDERED_LANE, who="test", owner="webhooks", ordering="per_key")
    await create_lane(connection, PAYMENT_LANE, who="test", owner=PAYMENTS)
    await connection.execute("ANALYZE")
    for rows in (MILLION, SLOTS, WEBHOOKS):
        await connection.execute(rows)
    await connection.close()


async def _fill_domains(dsn: str) -> None:
    """Add mails and instructions; elsewhere their items would be the newest of all."""
    connection = await connect(dsn)
    await create_lane(connection, MAIL_LANE, who="test", owner="mail")
    await connection.execute(MAILS)
    await create_lane(connection, OUTBOX_LANE, who="test", owner="outbox", ordering="per_key")
    await connection.execute(OUTBOX)
    await connection.close()


@pytest.fixture(scope="session")
def templates(quiet_server: Server) -> Templates:
    """The databases to copy."""
    return Templates(server=quiet_server)


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Which rows there are around those of a test; a file may choose others."""
    return "kernel"


@pytest.fixture(scope="module", params=["stale", "fresh"])
async def database(
    templates: Templates, rows: Rows, request: pytest.FixtureRequest
) -> AsyncGenerator[str]:
    """A copy with statistics of when it was empty, and then one with those of now.

    It belongs to one file: what others have rolled back would cost its tests pages.
    """
    template = await templates.get(rows=rows, statistics=request.param)
    yield await copy_database(templates.server.dsn, template, COPIED)
    await run_sql(templates.server.dsn, f"DROP DATABASE {COPIED} WITH (FORCE)")


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
async def explainer(database: str, request: pytest.FixtureRequest) -> AsyncGenerator[Explainer]:
    """An open transaction; after five calls PostgreSQL may choose either kind of plan."""
    connection = await connect(database)
    undone = connection.transaction()
    await undone.start()
    await connection.execute("SELECT set_config('plan_cache_mode', $1, true)", request.param)
    # No test is about time; but a plan that is a thousand times too long should not hold up all.
    await connection.execute("SET LOCAL statement_timeout = '20s'")
    yield Explainer(connection)
    await undone.rollback()
    await connection.close()
