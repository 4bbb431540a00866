"""Health, told apart: whether the process lives, and whether it can do its work."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from httpx import ASGITransport, AsyncClient
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.api import create_app
from penstock.kernel.api_keys import create_key
from penstock.postgres.embedded import Server, running, start, stop
from tests.api.scene import Callers, caller, problem


@pytest.mark.covers("A82", "B9")
async def test_health_needs_no_key_and_separates_live_from_ready(callers: Callers) -> None:
    health = await callers.stranger.get("/health")
    live = await callers.stranger.get("/health/live")
    ready = await callers.stranger.get("/health/ready")

    assert health.status_code == live.status_code == ready.status_code == 200
    assert health.json() == {"live": True, "ready": True, "database": "up"}
    assert live.json() == {"live": True}
    assert ready.json() == health.json()


async def test_a_probe_may_ask_for_the_head_only(callers: Callers) -> None:
    response = await callers.stranger.head("/health")

    assert response.status_code == 200


@pytest.fixture
async def away(data_dir: Path) -> AsyncGenerator[tuple[AsyncClient, Server]]:
    """An admin's client of an app whose server has been stopped, and that server."""
    with running(data_dir, options={"shared_buffers": "16MB"}) as server:
        async with Penstock(dsn=server.dsn) as app:
            async with app.pool.acquire() as db:
                _, token = await create_key(db, "admin", ["admin"], who="test")
            transport = ASGITransport(create_app(app), raise_app_exceptions=False)
            async with caller(transport, token) as client:
                stop(server)
                yield client, server
            app.pool.terminate()


async def test_without_the_database_we_live_and_are_not_ready(
    away: tuple[AsyncClient, Server],
) -> None:
    """Restarting the process would not bring the database back, so `live` must stay true."""
    client, _ = away

    health = await client.get("/health")
    live = await client.get("/health/live")

    assert health.status_code == 503
    assert health.json() == {"live": True, "ready": False, "database": "away"}
    assert live.status_code == 200


async def test_without_the_database_a_request_is_answered_with_503_and_retry_after(
    away: tuple[AsyncClient, Server],
) -> None:
    """The answer names no host and no socket; the log does."""
    client, server = away

    with capture_logs() as lines:
        response = await client.post("/items", json={"lane": "work", "payload": 1})

    told = problem(response, 503, "database-away")
    assert int(response.headers["retry-after"]) > 0
    assert str(server.cluster.pgdata.parent) not in response.text
    assert set(told) == {"type", "title", "status", "detail", "request_id"}
    (line,) = lines
    assert line["event"] == "request.failed"
    assert line["error"] == "DatabaseAway"


async def test_when_the_database_is_back_so_are_we(
    away: tuple[AsyncClient, Server], data_dir: Path
) -> None:
    """Nobody has to restart anything."""
    client, _ = away
    problem(await client.get("/lanes"), 503, "database-away")

    again = start(data_dir, options={"shared_buffers": "16MB"})
    health = await client.get("/health")
    lanes = await client.get("/lanes")
    stop(again)

    assert health.status_code == 200
    assert lanes.status_code == 200


DISK_FULL = """
CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'could not extend file "base/1/2": No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER disk_full BEFORE INSERT ON penstock.item EXECUTE FUNCTION disk_full()
"""


async def test_a_full_disk_is_unavailable_and_not_ready_and_says_why(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """It was a 500, which says that the request is at fault and that nobody should repeat it."""
    await penstock.pool.execute(DISK_FULL)

    refused = await admin.post("/items", json={"lane": "work", "payload": 1})
    health = await admin.get("/health")
    read = await admin.get("/lanes")

    told = problem(refused, 503, "database-full")
    assert int(refused.headers["retry-after"]) > 0
    assert "base/1/2" not in told["detail"]
    assert (health.status_code, health.json()["database"]) == (503, "full")
    assert health.json()["live"] is True
    assert read.status_code == 200


async def test_a_disk_with_space_again_is_ready_after_the_next_write(
    admin: AsyncClient, penstock: Penstock
) -> None:
    await penstock.pool.execute(DISK_FULL)
    problem(await admin.post("/items", json={"lane": "work", "payload": 1}), 503, "database-full")
    await penstock.pool.execute("DROP FUNCTION disk_full CASCADE")

    accepted = await admin.post("/items", json={"lane": "work", "payload": 1})
    health = await admin.get("/health")

    assert accepted.status_code == 202
    assert health.json() == {"live": True, "ready": True, "database": "up"}


async def test_a_read_only_database_is_unavailable_and_not_ready_and_says_why(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """After a failover, a connection may lead to what is a replica now."""
    await penstock.pool.execute("""
        DO $$ BEGIN EXECUTE format(
            'ALTER DATABASE %I SET default_transaction_read_only = on', current_database()
        ); END $$
    """)
    await cast("Any", penstock.pool).expire_connections()

    health = await admin.get("/health")
    refused = await admin.post("/items", json={"lane": "work", "payload": 1})

    assert (health.status_code, health.json()["database"]) == (503, "read-only")
    problem(refused, 503, "database-read-only")
