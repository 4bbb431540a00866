"""One key, one mail: in both lanes, over every interface, and also at the same time."""

import asyncio
import json
from typing import Any

import asyncpg
import psycopg
import pytest

from penstock.domains.mail.enqueue import Mailer
from penstock.kernel.errors import KeyConflict
from penstock.postgres.pool import Connection, Pool
from tests.domains.mail.outbox import ADA, Outbox, a_mail, body_of

PATIENCE = 30  # Seconds; nothing in a test takes so long.

BODY: dict[str, Any] = {"from": "shop@example.com", "to": [ADA], "subject": "Hi", "text": "Hello."}
SQL = "SELECT penstock.send_mail('a@b.org', '{c@d.org}', 'Hi', 'Hello', key => 'k', bulk => $1)"


async def count(outbox: Outbox) -> int:
    return await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.item")


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_key_of_the_other_lane_is_a_conflict_that_names_bulk(
    outbox: Outbox, bulk: bool
) -> None:
    """Two mails for one key would be two copies of one message."""
    first = await outbox.client.post("/mails", json=BODY | {"key": "k", "bulk": bulk})
    again = await outbox.client.post("/mails", json=BODY | {"key": "k", "bulk": bulk})
    other = await outbox.client.post("/mails", json=BODY | {"key": "k", "bulk": not bulk})

    mail_id = body_of(first, 202)["id"]
    assert body_of(again, 202) == {"id": mail_id, "is_new": False}
    assert other.status_code == 409
    assert (other.json()["field"], other.json()["item_id"]) == ("bulk", mail_id)
    assert await count(outbox) == 1


async def test_a_key_of_the_other_lane_is_a_conflict_for_python_and_sql(
    dsn: str, outbox: Outbox
) -> None:
    mailer = outbox.app.api(Mailer)
    await mailer.send(a_mail(key="k"))

    with pytest.raises(KeyConflict, match="another bulk"):
        await mailer.send(a_mail(key="k", bulk=True))
    with psycopg.connect(dsn) as blocking, pytest.raises(KeyConflict, match="another bulk"):
        mailer.send_blocking(a_mail(key="k", bulk=True), connection=blocking)
    async with outbox.app.pool.acquire() as db:
        assert await refusal_of(db) == "PS409"
    assert await count(outbox) == 1


async def test_a_batch_has_one_mail_for_a_key(outbox: Outbox) -> None:
    mails = [BODY | {"key": "k", "bulk": bulk} for bulk in (True, False, True)]

    answered = await outbox.client.post(
        "/mails/batch",
        content=json.dumps(mails),
        headers={"Content-Type": "application/json"},
    )

    results = body_of(answered)
    assert [each["outcome"] for each in results] == ["accepted", "conflict", "existing"]
    assert "bulk" in results[1]["detail"]
    assert await count(outbox) == 1


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
async def test_a_key_is_decided_by_the_transaction_that_was_first(
    outbox: Outbox, is_committed: bool
) -> None:
    """Both lanes see no key of the other until it is committed."""
    pool = outbox.app.pool
    async with pool.acquire() as first, pool.acquire() as second, asyncio.timeout(PATIENCE):
        process_id = await second.fetchval("SELECT pg_backend_pid()")
        began = first.transaction()
        await began.start()
        await first.fetchval(SQL, False)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(refusal_of(second))
            await until_blocked(pool, process_id)
            await (began.commit() if is_committed else began.rollback())

    assert waiting.result() == ("PS409" if is_committed else None)
    assert await count(outbox) == 1


async def until_blocked(pool: Pool, process_id: int) -> None:
    while not await pool.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", process_id):
        pass


async def refusal_of(db: Connection) -> str | None:
    """Send in the other lane; return the SQLSTATE of a refusal."""
    try:
        await db.fetchval(SQL, True)
    except asyncpg.PostgresError as refused:
        return str(getattr(refused, "sqlstate", None))
    return None


async def test_a_key_from_before_the_upgrade_counts_in_both_lanes(outbox: Outbox) -> None:
    """The release before had no row for it."""
    await outbox.send(ADA, key="k")
    await outbox.app.pool.execute("DELETE FROM penstock.mail_key")

    with pytest.raises(KeyConflict):
        await outbox.send(ADA, key="k", bulk=True)

    assert await count(outbox) == 1
