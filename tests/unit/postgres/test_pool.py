"""Connections, and which errors mean that the database is unavailable."""

import asyncio
import inspect
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from penstock.base.errors import BadSetting
from penstock.postgres.embedded import Server, running
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import (
    CONNECTION_LOST,
    Pool,
    address,
    connect,
    database_away,
    open_pool,
)
from tests.database import database_dsn, run_sql, wait_until_up

# By SQLSTATE: connection exceptions, shutdowns, "cannot connect now", a dropped database; no more
# disk, memory or connections; read-only; the victim of a deadlock.
AWAY_STATES = ("08", "57P0", "53", "25006", "40P01")


def vendor_errors() -> list[type[asyncpg.PostgresError]]:
    classes = [found for _, found in inspect.getmembers(asyncpg.exceptions, inspect.isclass)]
    return [
        found
        for found in classes
        if issubclass(found, asyncpg.PostgresError) and getattr(found, "sqlstate", None)
    ]


@pytest.mark.parametrize("error", vendor_errors(), ids=lambda error: error.__name__)
def test_exactly_lost_connections_count_as_an_unavailable_database(
    error: type[asyncpg.PostgresError],
) -> None:
    """One missed class is a worker that dies; one too many is a bug that is retried for ever."""
    state = str(getattr(error, "sqlstate", None))

    assert issubclass(error, CONNECTION_LOST) == state.startswith(AWAY_STATES)


async def test_a_refused_connection_raises_database_away() -> None:
    with pytest.raises(DatabaseAway):
        await connect("postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("dsn", ["postgresql://u@h:port/d", "mysql://u@h/d", "nonsense"])
async def test_a_malformed_address_is_a_bad_setting(dsn: str) -> None:
    """Waiting would not help, so the start is refused."""
    with pytest.raises(BadSetting, match="PENSTOCK_DATABASE_URL"):
        await connect(dsn)


async def test_an_unknown_database_is_a_bad_setting(server: Server) -> None:
    with pytest.raises(BadSetting, match="PENSTOCK_DATABASE_URL"):
        await connect(database_dsn(server.dsn, "no_such_database"))


async def test_a_wrong_argument_is_not_taken_for_a_lost_connection(db: Pool) -> None:
    """Confusing them would retry a bug for ever."""
    with pytest.raises(asyncpg.DataError), database_away():
        await db.fetchval("SELECT $1::integer", "not a number")


async def test_a_closed_connection_raises_database_away(dsn: str) -> None:
    connection = await connect(dsn)
    connection.terminate()

    with pytest.raises(DatabaseAway), database_away():
        await connection.fetchval("SELECT 1")


async def test_a_terminated_backend_raises_database_away(dsn: str, db: Pool) -> None:
    connection = await connect(dsn)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    await db.execute("SELECT pg_terminate_backend($1, 5000)", backend)

    with pytest.raises(DatabaseAway), database_away():
        await connection.fetchval("SELECT 1")


async def test_a_pool_sets_its_application_name_and_no_search_path(dsn: str) -> None:
    """All SQL qualifies its names, so it works in any session that a caller passes."""
    plain = await asyncpg.connect(dsn)
    path_of_the_server = await plain.fetchval("SELECT current_setting('search_path')")
    await plain.close()
    pool = await open_pool(dsn, min_size=1, max_size=1)

    name = await pool.fetchval("SELECT current_setting('application_name')")
    path = await pool.fetchval("SELECT current_setting('search_path')")
    document = await pool.fetchval("SELECT '{\"a\": 1}'::jsonb")
    await pool.close()

    assert name == "penstock"
    assert path == path_of_the_server
    assert document == '{"a": 1}'


CURRENT = "SELECT current_setting('synchronous_commit')"


async def test_commits_wait_for_the_disk_although_the_server_says_otherwise(tmp_path: Path) -> None:
    """A start mark that a crash loses after the call is a payment that is sent again unasked."""
    with running(tmp_path, options={"synchronous_commit": "off"}) as server, capture_logs() as log:
        pool = await open_pool(server.dsn, min_size=2, max_size=2)
        async with pool.acquire() as first, pool.acquire() as second:
            pooled = [await each.fetchval(CURRENT) for each in (first, second)]
        single = await connect(server.dsn)
        alone = await single.fetchval(CURRENT)
        await single.close()
        await pool.close()

    assert (pooled, alone) == (["on", "on"], "on")
    (said,) = [line for line in log if line["event"] == "database.corrected"]
    assert said["setting"] == "synchronous_commit"


@pytest.mark.parametrize("value", ["on", "local", "remote_write", "remote_apply"])
async def test_any_other_setting_of_commits_stays(dsn: str, db: Pool, value: str) -> None:
    """A stronger one than `on` must not be weakened."""
    name = await db.fetchval("SELECT current_database()")
    await run_sql(dsn, f"ALTER DATABASE {name} SET synchronous_commit = {value}")

    with capture_logs() as log:
        pool = await open_pool(dsn, min_size=1, max_size=1)
        current = await pool.fetchval(CURRENT)
        await pool.close()

    assert current == value
    assert log == []


async def test_waiting_for_the_database_ends_when_it_is_up(dsn: str) -> None:
    with capture_logs() as lines:
        await wait_until_up(dsn)

    assert lines == []


async def test_waiting_logs_each_try_in_one_line_without_the_password() -> None:
    """The line goes to terminals and logs that others can read."""
    with capture_logs() as lines, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await wait_until_up("postgresql://bob:hunter2@127.0.0.1:1/shop?sslmode=disable")

    assert len(lines) >= 2
    assert {line["event"] for line in lines} == {"database.awaited"}
    assert [line["try"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["address"] == "127.0.0.1:1/shop"
    assert "hunter2" not in str(lines)
    assert "\n" not in lines[0]["reason"]


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:p@db.example:6432/shop", "db.example:6432/shop"),
        ("postgresql://u:p@/shop?host=/run/pg", "/run/pg/shop"),
        ("postgresql:///shop", "local socket/shop"),
        ("postgresql://u:p@[::1]/shop", "::1/shop"),
        ("postgresql://u:p@h:port/shop", "h:?/shop"),
    ],
)
def test_an_address_has_no_credentials(dsn: str, shown: str) -> None:
    assert address(dsn) == shown
