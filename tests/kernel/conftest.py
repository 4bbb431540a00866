"""Fixtures of the kernel tests: a connection and a lane with the default policy."""

from collections.abc import AsyncGenerator

import pytest

from penstock.kernel.lane import Lane, create_lane
from penstock.postgres.embedded import Server
from penstock.postgres.pool import Connection, Pool, connect, open_pool
from tests.database import copy_database, run_sql


@pytest.fixture
async def pool(dsn: str) -> AsyncGenerator[Pool]:
    """A pool on this test's own database, for tests of several sessions at once."""
    opened = await open_pool(dsn, min_size=1, max_size=10)
    yield opened
    opened.terminate()


@pytest.fixture
async def db(pool: Pool) -> AsyncGenerator[Connection]:
    """One connection to this test's own database."""
    async with pool.acquire() as connection:
        yield connection


@pytest.fixture
async def lane(db: Connection) -> Lane:
    """A lane with the default policy, but no jitter in its backoff."""
    return await create_lane(db, "mail", who="test", backoff_jitter=0)


@pytest.fixture(scope="module")
async def shared(
    server: Server, template: str, request: pytest.FixtureRequest
) -> AsyncGenerator[Connection]:
    """One database for a file's tests that leave nothing behind, or that keep to a lane each.

    Copying a database is most of what a short test costs.
    """
    name = request.path.stem
    connection = await connect(await copy_database(server.dsn, template, name))
    yield connection
    connection.terminate()
    await run_sql(server.dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def shared_lane(shared: Connection) -> Lane:
    """The lane of tests that leave nothing in it."""
    return await create_lane(shared, "mail", who="test", backoff_jitter=0)
