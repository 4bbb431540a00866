"""Millions of rows, a copy for each file; each test works in a transaction that is rolled back."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import LiteralString, cast

import pytest

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

LOADED, COPIED = "loaded", "copied"
LOADED_BYTES = 6 * 2**30  # Both databases, and the log of what has filled them.
FOLDER = Path(__file__).parent
MILLION = cast("LiteralString", (FOLDER / "million.sql").read_text(encoding="utf-8"))
SLOTS = cast("LiteralString", (FOLDER / "slots.sql").read_text(encoding="utf-8"))
WEBHOOKS = cast("LiteralString", (FOLDER / "webhooks.sql").read_text(encoding="utf-8"))
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


@pytest.fixture(scope="session")
async def loaded(quiet_server: Server) -> str:
    """The name of a database with millions of rows, which was analysed while it was empty."""
    await run_sql(quiet_server.dsn, f"CREATE DATABASE {LOADED}")
    connection = await connect(database_dsn(quiet_server.dsn, LOADED))
    await migrate(connection, MIGRATION_PACKAGES)
    await connection.execute(WITHOUT_LANES)
    await create_lane(connection, "big", who="test")
    await create_lane(connection, "line", who="test", ordering="per_key", on_dead_head="park")
    await create_lane(connection, "quiet", who="test")
    await create_lane(connection, LANE, who="test", owner="webhooks")
    await create_lane(connection, ORDERED_LANE, who="test", owner="webhooks", ordering="per_key")
    await create_lane(connection, PAYMENT_LANE, who="test", owner=PAYMENTS)
    await connection.execute("ANALYZE")
    await connection.execute(MILLION)
    await connection.execute(SLOTS)
    await connection.execute(WEBHOOKS)
    await connection.close()
    return LOADED


@pytest.fixture(scope="module")
async def copied(quiet_server: Server, loaded: str) -> AsyncGenerator[str]:
    """The address of a copy: what other files have rolled back would cost these tests pages."""
    yield await copy_database(quiet_server.dsn, loaded, COPIED)
    await run_sql(quiet_server.dsn, f"DROP DATABASE {COPIED} WITH (FORCE)")


@pytest.fixture(scope="module", params=["stale", "fresh"])
async def database(copied: str, request: pytest.FixtureRequest) -> str:
    """The database with statistics of when it was empty, and then with those of now."""
    if request.param == "fresh":
        await run_sql(copied, "ANALYZE")
    return copied


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
