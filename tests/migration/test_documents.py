"""Statements of the systems that Penstock replaces run as they stand, or name their replacement."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from urllib.parse import urlsplit

import asyncpg
import pytest

from penstock.kernel.lane import create_lane
from penstock.postgres.pool import Connection, connect
from penstock.postgres.search_path import extend_search_path
from tests.database import run_sql

WHEN = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=2)


@pytest.fixture
async def session(dsn: str) -> AsyncGenerator[Connection]:
    """A connection as anybody opens it to the embedded server, with an event and a booked slot."""
    opened = await connect(dsn)
    await create_lane(opened, "penstock.webhooks", who="test", owner="webhooks")
    await opened.execute(
        "SELECT * FROM penstock.assign_slots('default', ARRAY['pay-1'], ARRAY[$1::timestamptz])",
        WHEN,
    )
    await opened.execute("SELECT * FROM penstock.accept_event('a.b', '{}', event_id => 'e-1')")
    yield opened
    await opened.close()


# --------------------------------------------------------------------------------------- reads


async def test_reads_of_the_documents_run_as_they_stand(session: Connection) -> None:
    """Without the schema's name: it is on the search path of the embedded server."""
    rules = await session.fetch("SELECT * FROM RL_EVENT_WNDW_CONFIG WHERE ACT_IN = 1")
    slots = await session.fetch("SELECT * FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = $1", "pay-1")
    count = await session.fetchval("SELECT SLOT_CT FROM RL_WNDW_CT WHERE WNDW_STRT_TS = $1", WHEN)
    frontier = await session.fetchval(
        "SELECT MAX(WNDW_END_TS) FROM RL_WNDW_FRONTIER_TRK WHERE REQ_TS = $1", WHEN
    )
    events = await session.fetch("SELECT id, status FROM events WHERE id = 'e-1'")
    attempts = await session.fetch("SELECT * FROM delivery_attempts WHERE event_id = 'e-1'")
    subscriptions = await session.fetch("SELECT id, url, active FROM subscriptions")

    assert (len(rules), len(slots), count) == (1, 1, 1)
    assert frontier > WHEN
    assert [tuple(row) for row in events] == [("e-1", "delivered")]
    assert (attempts, subscriptions) == ([], [])


async def test_your_own_tables_are_found_first(session: Connection) -> None:
    """A shop may have had a table of events before it had Penstock."""
    await session.execute("CREATE TABLE events (name text)")

    assert await session.fetch("SELECT name FROM events") == []


async def test_a_database_elsewhere_gets_the_search_path_on_request(dsn: str) -> None:
    await run_sql(dsn, f'ALTER DATABASE {urlsplit(dsn).path[1:]} SET search_path = "$user", public')
    before = await connect(dsn)

    first = await extend_search_path(before)
    after = await connect(dsn)
    second = await extend_search_path(after)

    assert (first, second) == (True, False)
    assert await after.fetchval("SHOW search_path") == '"$user", public, penstock'
    assert await after.fetch("SELECT * FROM rl_wndw_ct") == []
    await before.close()
    await after.close()


# -------------------------------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("claim", "pointer"),
    [
        (
            "SELECT SLOT_CT FROM RL_WNDW_CT WHERE WNDW_STRT_TS = now() FOR UPDATE SKIP LOCKED",
            "use_penstock_assign_slots",
        ),
        (
            """
            SELECT WNDW_STRT_TS FROM RL_WNDW_CT
            WHERE WNDW_STRT_TS = (
                SELECT WNDW_STRT_TS FROM RL_WNDW_CT WHERE SLOT_CT < 100
                ORDER BY WNDW_STRT_TS FETCH FIRST 1 ROW ONLY)
            AND SLOT_CT < 100 FOR UPDATE SKIP LOCKED
            """,
            "use_penstock_assign_slots",
        ),
        ("SELECT * FROM RL_EVENT_SLOT_DTL FOR UPDATE", "use_penstock_assign_slots"),
        ("SELECT * FROM RL_EVENT_WNDW_CONFIG FOR UPDATE", "use_penstock_assign_slots"),
        ("SELECT * FROM RL_WNDW_FRONTIER_TRK FOR UPDATE", "use_penstock_assign_slots"),
        (
            "SELECT id FROM events WHERE status = 'retrying' FOR UPDATE SKIP LOCKED",
            "run_penstock_worker",
        ),
        ("SELECT * FROM delivery_attempts FOR UPDATE", "run_penstock_worker"),
        ("SELECT * FROM subscriptions FOR UPDATE", "run_penstock_worker"),
    ],
)
async def test_a_claim_on_a_view_fails_and_names_what_replaces_it(
    session: Connection, claim: LiteralString, pointer: str
) -> None:
    """It would lock rows that claim nothing, and two processes would both go on."""
    with pytest.raises(asyncpg.WrongObjectTypeError, match=f'cannot lock rows.*"{pointer}"'):
        await session.fetch(claim)


@pytest.mark.parametrize(
    "write",
    [
        "DELETE FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = 'nobody'",
        "DELETE FROM RL_EVENT_WNDW_CONFIG",
        "UPDATE events SET status = 'pending'",
        "DELETE FROM delivery_attempts",
        "UPDATE subscriptions SET url = 'https://example.com'",
    ],
)
async def test_an_update_of_a_view_fails_as_a_claim_does(
    session: Connection, write: LiteralString
) -> None:
    """PostgreSQL locks the rows first; no row has to match."""
    pointer = "use_penstock_assign_slots|run_penstock_worker"
    with pytest.raises(asyncpg.WrongObjectTypeError, match=f'cannot lock rows.*"({pointer})"'):
        await session.execute(write)


@pytest.mark.parametrize(
    ("write", "pointer"),
    [
        ("INSERT INTO RL_EVENT_SLOT_DTL (EVENT_ID) VALUES ('pay-2')", "penstock.assign_slots"),
        ("INSERT INTO RL_WNDW_CT (SLOT_CT) VALUES (0)", "penstock.assign_slots"),
        ("UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1", "UPDATE, use penstock.assign_slots"),
        ("INSERT INTO RL_EVENT_WNDW_CONFIG (ACT_IN) VALUES (1)", "POST /admin/rate-limit/config"),
        ("INSERT INTO RL_WNDW_FRONTIER_TRK (REQ_TS) VALUES (now())", "penstock.assign_slots"),
        ("INSERT INTO events (id) VALUES ('e-2')", "penstock.accept_events"),
        ("INSERT INTO delivery_attempts (error) VALUES ('')", "penstock worker"),
        ("INSERT INTO subscriptions (url) VALUES ('')", "penstock subscription"),
    ],
)
async def test_a_write_to_a_view_names_what_replaces_it(
    session: Connection, write: LiteralString, pointer: str
) -> None:
    with pytest.raises(asyncpg.FeatureNotSupportedError, match=f"is a read-only view.*{pointer}"):
        await session.execute(write)
