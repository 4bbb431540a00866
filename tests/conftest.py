"""One real PostgreSQL per test session; one database per test, copied from a migrated template."""

import itertools
import os
from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime

import pytest

from penstock.base.clock import FakeClock
from penstock.postgres.embedded import Server, running
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, connect, open_pool
from tests.database import OWNERS, database_dsn, run_sql

TEMPLATE = "penstock_template"
# A crash of the server loses nothing without fsync, only a crash of the machine does; and each
# test copies a database, which is an order of magnitude faster this way.
FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "100"}

# Receivers of webhooks stand on loopback here, and their secrets are kept under this key. Settings
# are read once, so these must be there before anything reads them.
os.environ["PENSTOCK_EGRESS_ALLOW"] = "127.0.0.0/8 ::1/128"
os.environ["PENSTOCK_SECRET_KEY"] = "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI="

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The session's server; tests that kill or configure one start their own."""
    with running(tmp_path_factory.mktemp("server"), options=FAST) as started:
        yield started


@pytest.fixture(scope="session")
async def template(server: Server) -> str:
    """The name of a database that has the current schema and no rows."""
    await run_sql(server.dsn, f"CREATE DATABASE {TEMPLATE}")
    connection = await connect(database_dsn(server.dsn, TEMPLATE))
    await migrate(connection, OWNERS)
    await connection.close()
    return TEMPLATE


@pytest.fixture
async def dsn(server: Server, template: str) -> AsyncGenerator[str]:
    """The address of a migrated database that belongs to this test alone."""
    name = f"test_{next(_numbers)}"
    await run_sql(server.dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield database_dsn(server.dsn, name)
    await run_sql(server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def empty_dsn(server: Server) -> AsyncGenerator[str]:
    """The address of a database without our schema."""
    name = f"empty_{next(_numbers)}"
    await run_sql(server.dsn, f"CREATE DATABASE {name}")
    yield database_dsn(server.dsn, name)
    await run_sql(server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(dsn: str) -> AsyncGenerator[Pool]:
    """A pool on this test's own database."""
    pool = await open_pool(dsn, min_size=1, max_size=10)
    yield pool
    pool.terminate()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands at noon until the test advances it."""
    return FakeClock(datetime(2030, 1, 1, 12, tzinfo=UTC))
