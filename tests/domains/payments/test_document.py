"""Statements of the dispatcher that payments replace run as they stand, or are refused."""

import json
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import LiteralString, cast

import asyncpg
import pytest

from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.item import Dead, Done, Hold, ItemId, Retry, Snooze
from penstock.kernel.lane import Lane, read_lane, set_lane
from penstock.kernel.operate import cancel, hold
from penstock.kernel.sweep import rescue
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection, Row, connect
from tests.database import MIGRATION_PACKAGES, run_sql
from tests.domains.payments.scene import AT_FOUR, Scene, a_payment
from tests.kernel.scene import attempt_once, end, put, take

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

# As they stand in the document, comments included.
TUNING: tuple[LiteralString, ...] = (
    """
    -- Tune batch size (takes effect within 5 seconds)
    UPDATE EXEC_RATE_CONFIG SET batch_size = 1000 WHERE item_type = 'PAYMENT';
    """,
    """
    -- Kill switch (items remain READY, not lost)
    UPDATE EXEC_RATE_CONFIG SET enabled = 0 WHERE item_type = 'PAYMENT';
    """,
    """
    -- Adjust jitter window
    UPDATE EXEC_RATE_CONFIG SET jitter_window_ms = 8000 WHERE item_type = 'PAYMENT';
    """,
)
INSERT: LiteralString = (
    "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue) VALUES"
)


@pytest.fixture
async def session(dsn: str) -> AsyncGenerator[Connection]:
    """A connection as anybody opens it to the embedded server."""
    opened = await connect(dsn)
    yield opened
    await opened.close()


async def columns_of(session: Connection, relation: str) -> list[str]:
    rows = await session.fetch(
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum",
        relation,
    )
    return [row[0] for row in rows]


# ----------------------------------------------------------------------------------- the schema


COLUMNS = {
    "exec_rate_config": """
        item_type enabled batch_size dispatch_interval_secs jitter_window_ms pre_start_buffer_mins
        max_dispatch_retries stale_claim_threshold_mins exec_workflow_type exec_task_queue
        created_at updated_at
    """,
    "payment_exec_queue": """
        payment_id item_type queue_status scheduled_exec_time init_workflow_id dispatch_batch_id
        exec_workflow_id claimed_at dispatched_at retry_count last_error created_at updated_at
    """,
    "payment_exec_context": """
        payment_id item_type context_json context_version created_at updated_at
    """,
    "dispatch_audit_log": """
        audit_id batch_id item_type payment_id action status_before status_after detail created_at
    """,
}


@pytest.mark.covers("A46", "A47", "A48")
@pytest.mark.parametrize("relation", COLUMNS)
async def test_the_tables_of_the_document_have_its_columns(
    session: Connection, relation: str
) -> None:
    """Found by name alone: the schema is on the search path of the embedded server."""
    assert await columns_of(session, relation) == COLUMNS[relation].split()


@pytest.mark.covers("A55", "A94")
async def test_a_migrated_database_has_a_row_for_payments(empty_dsn: str) -> None:
    connection = await connect(empty_dsn)
    await migrate(connection, MIGRATION_PACKAGES)

    row = await connection.fetchrow("SELECT * FROM penstock.exec_rate_config")

    assert row is not None
    assert tuple(row)[:10] == (
        "PAYMENT", 1, 500, 5, 4000, 0, 5, 2, "PaymentExecWorkflow", "payment-exec-task-queue",
    )  # fmt: skip
    assert row["created_at"] is not None
    await connection.close()


@pytest.mark.covers("A50")
async def test_no_table_of_payments_has_a_foreign_key(session: Connection) -> None:
    """They would lock rows that batches write at once."""
    keys = await session.fetch(
        "SELECT conname FROM pg_constraint WHERE contype = 'f'"
        " AND (conrelid::regclass::text ~ 'payment|dispatch_audit_log')"
    )

    assert keys == []


async def test_the_view_of_an_older_kernel_is_replaced(dsn: str) -> None:
    """A database of an earlier release has a view of this name with fewer columns."""
    connection = await connect(dsn)
    await run_sql(dsn, "DROP VIEW penstock.exec_rate_config")
    await run_sql(dsn, "CREATE VIEW penstock.exec_rate_config AS SELECT 1 AS item_type")
    await run_sql(
        dsn,
        "DELETE FROM penstock.function_version WHERE owner = 'penstock.domains.payments'"
        " AND name LIKE '%exec_rate_config%'",
    )

    await migrate(connection, MIGRATION_PACKAGES, post=True)
    await connection.execute(TUNING[0])

    assert (await read_lane(connection, "payment")).batch_size == 1000
    await connection.close()


async def test_without_payments_the_old_view_goes(empty_dsn: str) -> None:
    connection = await connect(empty_dsn)
    await migrate(connection, ["penstock.kernel"])
    await connection.execute("CREATE VIEW penstock.exec_rate_config AS SELECT 1 AS item_type")

    await migrate(connection, ["penstock.kernel"], post=True)

    assert await connection.fetchval("SELECT to_regclass('penstock.exec_rate_config')") is None
    await connection.close()


# --------------------------------------------------------------------------- EXEC_RATE_CONFIG


async def test_the_examples_of_tuning_change_the_lane(session: Connection) -> None:
    for statement in TUNING:
        await session.execute(statement)

    lane = await read_lane(session, "payment")
    assert (lane.batch_size, lane.enabled) == (1000, False)
    assert lane.jitter_window == timedelta(seconds=8)
    assert lane.version == 4


async def test_an_update_is_audited_and_wakes_the_workers(session: Connection) -> None:
    """As a change by the API or the command line is; the role is who did it."""
    heard: list[str] = []
    await session.add_listener("penstock", lambda *event: heard.append(event[3]))

    for statement in TUNING:
        await session.execute(statement)

    rows = await session.fetch(
        "SELECT who, subject, before, after FROM penstock.audit "
        "WHERE action = 'lane.changed' ORDER BY audit_id"
    )
    assert {(row["who"], row["subject"]) for row in rows} == {("sql:postgres", "payment")}
    assert [(json.loads(row["before"]), json.loads(row["after"])) for row in rows] == [
        ({"batch_size": 500}, {"batch_size": 1000}),
        ({"enabled": True}, {"enabled": False}),
        ({"jitter_window": 4}, {"jitter_window": 8}),
    ]
    assert heard == ["policy"] * 3


async def test_an_update_that_changes_nothing_writes_nothing(session: Connection) -> None:
    await session.execute("UPDATE exec_rate_config SET batch_size = 500, enabled = 1")

    assert (await read_lane(session, "payment")).version == 1


async def test_minutes_may_be_fractions(session: Connection) -> None:
    await session.execute(
        "UPDATE exec_rate_config SET stale_claim_threshold_mins = 0.5, pre_start_buffer_mins = 1.5,"
        " dispatch_interval_secs = 0.25"
    )

    lane = await read_lane(session, "payment")
    assert lane.lease == timedelta(seconds=30)
    assert lane.pre_start_buffer == timedelta(seconds=90)
    assert lane.dispatch_interval == timedelta(seconds=0.25)
    shown = await session.fetchval("SELECT stale_claim_threshold_mins::text FROM exec_rate_config")
    assert shown == "0.5"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("batch_size = 0", asyncpg.CheckViolationError),
        ("batch_size = NULL", asyncpg.NotNullViolationError),
        ("enabled = 2", asyncpg.CheckViolationError),
        ("item_type = 'INVOICE'", asyncpg.FeatureNotSupportedError),
        ("exec_task_queue = NULL", asyncpg.NotNullViolationError),
    ],
)
async def test_an_impossible_update_is_refused(
    session: Connection, *, change: LiteralString, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await session.execute(f"UPDATE exec_rate_config SET {change} WHERE item_type = 'PAYMENT'")

    assert (await read_lane(session, "payment")).version == 1


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("enabled", "2", "0 or 1"),
        ("batch_size", "0", "a number from 1 to 10000"),
        ("batch_size", "10001", "a number from 1 to 10000"),
        ("batch_size", "NULL", "a number from 1 to 10000"),
        ("dispatch_interval_secs", "-1", "from 0 to 86400 seconds"),
        ("dispatch_interval_secs", "86400.5", "from 0 to 86400 seconds"),
        ("jitter_window_ms", "-1", "from 0 to 3600000 milliseconds"),
        ("jitter_window_ms", "3600001", "from 0 to 3600000 milliseconds"),
        ("pre_start_buffer_mins", "-0.5", "from 0 to 60 minutes"),
        ("pre_start_buffer_mins", "61", "from 0 to 60 minutes"),
        ("pre_start_buffer_mins", "'NaN'", "from 0 to 60 minutes"),
        ("max_dispatch_retries", "0", "a number from 1 to 1000"),
        ("max_dispatch_retries", "1001", "a number from 1 to 1000"),
        ("stale_claim_threshold_mins", "0.01", "from 1/60 to 1440 minutes"),
        ("stale_claim_threshold_mins", "1441", "from 1/60 to 1440 minutes"),
        ("exec_workflow_type", "''", "a text of 1 to 255 characters"),
        ("exec_task_queue", "NULL", "a text of 1 to 255 characters"),
    ],
)
async def test_a_refused_value_is_named_with_what_is_allowed(
    session: Connection, *, column: str, value: str, allowed: str
) -> None:
    """The tables behind the view have other columns and units."""
    statement = f"UPDATE exec_rate_config SET {column} = {value}"

    with pytest.raises(asyncpg.PostgresError) as raised:
        await session.execute(cast("LiteralString", statement))

    shown = value.strip("'")
    assert str(raised.value).splitlines()[0] == (
        f"exec_rate_config.{column} must be {allowed}, not {shown}"
    )
    assert getattr(raised.value, "hint", None)
    assert getattr(raised.value, "column_name", None) == column


@pytest.mark.parametrize(
    ("change", "field", "stored"),
    [
        ("batch_size = 1", "batch_size", 1),
        ("batch_size = 10000", "batch_size", 10_000),
        ("dispatch_interval_secs = 86400", "dispatch_interval", timedelta(days=1)),
        ("jitter_window_ms = 3600000", "jitter_window", timedelta(hours=1)),
        ("pre_start_buffer_mins = 60", "pre_start_buffer", timedelta(hours=1)),
        ("max_dispatch_retries = 1000", "max_attempts", 1000),
        ("stale_claim_threshold_mins = 1440", "lease", timedelta(days=1)),
        ("stale_claim_threshold_mins = 1 / 60.0", "lease", timedelta(seconds=1)),
    ],
)
async def test_the_ends_of_the_allowed_ranges_are_those_of_the_lane(
    session: Connection, *, change: LiteralString, field: str, stored: object
) -> None:
    await session.execute(f"UPDATE exec_rate_config SET {change}")

    assert getattr(await read_lane(session, "payment"), field) == stored


async def test_workflow_and_task_queue_are_changed_by_an_update(session: Connection) -> None:
    before = await session.fetchval("SELECT updated_at FROM exec_rate_config")

    await session.execute("UPDATE exec_rate_config SET exec_task_queue = 'fast'")

    row = await session.fetchrow("SELECT * FROM exec_rate_config")
    assert row is not None
    assert (row["exec_workflow_type"], row["exec_task_queue"]) == ("PaymentExecWorkflow", "fast")
    assert row["updated_at"] > before


@pytest.mark.covers("A56")
async def test_an_insert_makes_an_item_type_with_its_lane(session: Connection) -> None:
    """Two types share the tables, and each has a policy of its own."""
    await session.execute(
        "INSERT INTO EXEC_RATE_CONFIG (item_type, enabled, batch_size, stale_claim_threshold_mins,"
        " exec_workflow_type, exec_task_queue)"
        " VALUES ('INVOICE', 0, 50, 1, 'InvoiceWorkflow', 'invoices')"
    )

    lane = await read_lane(session, "invoice")
    assert (lane.enabled, lane.batch_size, lane.lease) == (False, 50, timedelta(minutes=1))
    assert lane.dispatch_interval == timedelta(seconds=5)
    rows = await session.fetch("SELECT item_type, exec_task_queue FROM exec_rate_config ORDER BY 1")
    assert [tuple(row) for row in rows] == [
        ("INVOICE", "invoices"),
        ("PAYMENT", "payment-exec-task-queue"),
    ]
    queued = await session.fetchrow(
        "SELECT * FROM penstock.save_context_and_enqueue("
        "'INVOICE', ARRAY['i-1'], ARRAY['{}'::jsonb], ARRAY[1], ARRAY[now()])"
    )
    assert queued is not None
    assert queued["is_new"]
    types = await session.fetch("SELECT payment_id, item_type FROM payment_exec_queue")
    assert [tuple(row) for row in types] == [("i-1", "INVOICE")]


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (f"{INSERT} ('PAYMENT', 'a', 'b')", "item_type 'PAYMENT' exists"),
        (f"{INSERT} ('invoice', 'a', 'b')", "item_type must be a word of .*, not invoice"),
        ("INSERT INTO exec_rate_config (batch_size) VALUES (1)", "item_type must be .*, not NULL"),
        ("DELETE FROM exec_rate_config", "set enabled = 0"),
    ],
)
async def test_an_impossible_insert_or_delete_is_refused(
    session: Connection, write: LiteralString, error: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match=error):
        await session.execute(write)

    assert await session.fetchval("SELECT count(*) FROM exec_rate_config") == 1


# ------------------------------------------------------------------------- PAYMENT_EXEC_QUEUE


async def leased(db: Connection, lane: Lane) -> Lease:
    lease = await claim(db, lane.lane_id, Cursor(), limit=10, worker="test", now=AT_FOUR)
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.covers("A13", "A20")
async def test_a_payment_is_ready_then_claimed_then_dispatched(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        lane = await read_lane(db, "payment")
        await scene.payments.schedule(a_payment(), init_workflow_id="init-1")
        ready = await queue_row(db)
        lease = await leased(db, lane)
        claimed = await queue_row(db)
        await end(db, lane, lease, Done(), now=AT_FOUR)
        dispatched = await queue_row(db)

    assert (ready["queue_status"], ready["dispatch_batch_id"]) == ("READY", None)
    assert (ready["scheduled_exec_time"], ready["init_workflow_id"]) == (AT_FOUR, "init-1")
    assert (claimed["queue_status"], claimed["claimed_at"]) == ("CLAIMED", AT_FOUR)
    assert claimed["dispatch_batch_id"].startswith("BATCH-")
    assert (dispatched["queue_status"], dispatched["retry_count"]) == ("DISPATCHED", 0)
    assert dispatched["dispatched_at"] == AT_FOUR
    assert dispatched["dispatch_batch_id"] == claimed["dispatch_batch_id"]


async def queue_row(db: Connection) -> Row:
    row = await db.fetchrow("SELECT * FROM penstock.payment_exec_queue")
    assert row is not None
    return row


@pytest.mark.covers("A14")
async def test_a_failed_dispatch_is_ready_again_with_its_error(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        lane = await read_lane(db, "payment")
        await scene.payments.schedule(a_payment())
        lease = await leased(db, lane)
        await end(db, lane, lease, Retry("the rail is away"), now=AT_FOUR)
        row = await queue_row(db)

    assert (row["queue_status"], row["retry_count"]) == ("READY", 1)
    assert row["last_error"] == "the rail is away"


@pytest.mark.covers("A39")
async def test_a_payment_is_claimed_when_it_is_due_and_has_a_retry_left(scene: Scene) -> None:
    """The buffer counts from the instant of the payment, and the retries from its first failure."""
    async with scene.app.pool.acquire() as db:
        lane = await set_lane(
            db, "payment", who="test", pre_start_buffer=10 * MINUTE, max_attempts=2,
            dispatch_interval=timedelta(0),
        )  # fmt: skip
        await scene.payments.schedule(a_payment())
        early = await try_claim(db, lane, now=AT_FOUR - 11 * MINUTE)
        first = await try_claim(db, lane, now=AT_FOUR - 9 * MINUTE)
        await end(db, lane, first, Retry("the rail is away"), now=AT_FOUR)
        second = await try_claim(db, lane, now=AT_FOUR + HOUR)
        ready = await queue_row(db)
        await end(db, lane, second, Retry("the rail is away"), now=AT_FOUR + HOUR)
        third = await try_claim(db, lane, now=AT_FOUR + 24 * HOUR)
        dead = await queue_row(db)

    assert [len(each.items) for each in (early, first, second, third)] == [0, 1, 1, 0]
    assert (ready["queue_status"], ready["retry_count"]) == ("CLAIMED", 1)
    assert (dead["queue_status"], dead["retry_count"]) == ("DEAD", 2)


@pytest.mark.covers("A89")
async def test_a_payment_that_kills_every_worker_ends_dead(scene: Scene) -> None:
    """It would be claimed for ever, and take the batch with it each time."""
    at = AT_FOUR
    async with scene.app.pool.acquire() as db:
        lane = await set_lane(
            db, "payment", who="test", max_attempts=3, dispatch_interval=timedelta(0)
        )
        await scene.payments.schedule(a_payment())
        claims = []
        for _ in range(4):
            claims.append(len((await try_claim(db, lane, now=at)).items))
            at += HOUR
            await rescue(db, now=at)
        row = await queue_row(db)

    assert claims == [1, 1, 1, 0]
    assert (row["queue_status"], row["retry_count"]) == ("DEAD", 3)


@pytest.mark.covers("A92")
async def test_the_instant_decides_which_payment_is_first_also_after_a_retry(scene: Scene) -> None:
    """A payment that is tried again has a new instant, and overtakes nobody who waits longer."""
    instants = {"p-1": AT_FOUR, "p-2": AT_FOUR - HOUR, "p-3": AT_FOUR + HOUR}
    async with scene.app.pool.acquire() as db:
        lane = await set_lane(
            db, "payment", who="test", batch_size=1, dispatch_interval=timedelta(0)
        )
        for payment_id, at in instants.items():
            await scene.payments.schedule(a_payment(payment_id, execute_at=at.isoformat()))
        order = []
        for number in range(4):
            at = AT_FOUR + (2 + number) * HOUR
            lease = await try_claim(db, lane, now=at)
            order += [each.key for each in lease.items]
            ending = Retry("the rail is away", after=90 * MINUTE) if number == 0 else Done()
            await end(db, lane, lease, ending, now=at)

    assert order == ["p-2", "p-1", "p-3", "p-2"]


async def try_claim(db: Connection, lane: Lane, *, now: datetime) -> Lease:
    """Claim what may be claimed at an instant; a lease without items if there is nothing."""
    found = await claim(db, lane.lane_id, Cursor(), limit=10, worker="test", now=now)
    return found if isinstance(found, Lease) else Lease(token=0, claimed_at=now, items=[])


@pytest.mark.covers("A88")
async def test_what_is_dead_held_or_cancelled_has_words_of_its_own(scene: Scene) -> None:
    """READY would say that it leaves by itself."""
    async with scene.app.pool.acquire() as db:
        lane = await read_lane(db, "payment")
        await scene.payments.schedule(a_payment("p-1"))
        lease = await leased(db, lane)
        await end(db, lane, lease, Dead("refused"), now=AT_FOUR)
        for payment_id in ("p-2", "p-3"):
            await scene.payments.schedule(a_payment(payment_id))
        ids = {row["payment_id"]: ItemId(row["item_id"]) for row in await scene.rows()}
        await hold(db, ids["p-2"], who="ann", reason="fraud?")
        await cancel(db, ids["p-3"], who="ann", owner="payments")
        rows = await db.fetch(
            "SELECT queue_status, last_error FROM penstock.payment_exec_queue ORDER BY payment_id"
        )

    assert [tuple(row) for row in rows] == [
        ("DEAD", "refused"),
        ("HELD", "fraud?"),
        ("CANCELLED", None),
    ]


# What the view must answer, from the kernel's own word about each item.
LOCATED: LiteralString = """
SELECT c.payment_id, coalesce(place.state, 'removed') AS state,
    CASE coalesce(place.state, lower(p.status))
        WHEN 'leased' THEN 'CLAIMED'
        WHEN 'scheduled' THEN 'READY'
        WHEN 'ready' THEN 'READY'
        WHEN 'parked' THEN 'READY'
        WHEN 'dead' THEN 'DEAD'
        WHEN 'held' THEN 'HELD'
        WHEN 'cancelled' THEN 'CANCELLED'
        ELSE 'DISPATCHED'
    END AS queue_status,
    coalesce(p.scheduled_at, place.due_at, item.due_at) AS scheduled_exec_time,
    penstock.dispatch_batch_id(coalesce(lease.token, tried.token)) AS dispatch_batch_id,
    coalesce(lease.claimed_at, tried.claimed_at) AS claimed_at,
    CASE WHEN place.state = 'done' THEN tried.settled_at END AS dispatched_at,
    tried.failed AS retry_count,
    CASE WHEN place.state <> 'done' THEN coalesce(place.reason, tried.reason) END AS last_error,
    greatest(c.created_at, p.updated_at, lease.claimed_at, tried.settled_at) AS updated_at
FROM penstock.payment_exec_context AS c
JOIN penstock.idempotency AS i ON i.key = c.payment_id
LEFT JOIN penstock.payment AS p USING (payment_id)
LEFT JOIN penstock.item ON item.id = i.item_id
LEFT JOIN LATERAL penstock.locate(ARRAY[i.item_id]) AS place ON true
LEFT JOIN penstock.lease ON i.item_id = ANY (lease.item_ids)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE outcome IN ('retry', 'lost', 'dead'))::integer AS failed,
        (array_agg(token ORDER BY attempt DESC))[1] AS token,
        (array_agg(reason ORDER BY attempt DESC))[1] AS reason,
        max(attempt.claimed_at) AS claimed_at, max(settled_at) AS settled_at
    FROM penstock.attempt
    WHERE item_id = i.item_id
) AS tried
ORDER BY payment_id
"""
SHOWN: LiteralString = """
SELECT payment_id, queue_status, scheduled_exec_time, dispatch_batch_id, claimed_at, dispatched_at,
    retry_count, last_error, updated_at
FROM penstock.payment_exec_queue
ORDER BY payment_id
"""
ENDINGS = {
    "done": Done(),
    "retry": Retry("the rail is away"),
    "snoozed": Snooze(timedelta(minutes=1)),
    "held": Hold("no reply"),
    "dead": Dead("refused"),
}


async def test_the_queue_shows_every_state_as_the_kernel_has_it(scene: Scene) -> None:
    """The view does not ask the kernel for each row, and must not answer otherwise."""
    async with scene.app.pool.acquire() as db:
        await db.execute("UPDATE penstock.exec_rate_config SET dispatch_interval_secs = 0")
        await bring_payments_into_each_state(scene, db)
        await bring_invoices_into_each_state(db)

        located = [dict(row.items()) for row in await db.fetch(LOCATED)]
        shown = [dict(row.items()) for row in await db.fetch(SHOWN)]

    states = {row["payment_id"]: row.pop("state") for row in located}
    assert set(states.values()) == {
        "scheduled", "ready", "parked", "leased", "held", "dead", "cancelled", "done", "removed",
    }  # fmt: skip
    assert shown == located


async def bring_payments_into_each_state(scene: Scene, db: Connection) -> None:
    """Their instants are those of the payments."""
    lane = await read_lane(db, "payment")
    for name, ending in ENDINGS.items():
        await scene.payments.schedule(a_payment(name))
        await attempt_once(db, lane, ending, now=AT_FOUR)
    for name in ("removed", "cancelled and removed"):
        await scene.payments.schedule(a_payment(name))
    await end(db, lane, await leased(db, lane), Done(), now=AT_FOUR)
    await scene.payments.schedule(a_payment("leased"))
    await leased(db, lane)
    for name in ("scheduled", "cancelled", "held by a person"):
        await scene.payments.schedule(a_payment(name))
    await scene.payments.schedule(a_payment("ready", execute_at=None))
    ids = {row["payment_id"]: ItemId(row["item_id"]) for row in await scene.rows()}
    await cancel(db, ids["cancelled"], who="ann", owner="payments")
    await hold(db, ids["held by a person"], who="ann", reason="fraud?")
    removed = [ids["removed"], ids["cancelled and removed"]]
    await db.execute("DELETE FROM penstock.item WHERE id = ANY ($1)", removed)
    await db.execute("DELETE FROM penstock.attempt WHERE item_id = ANY ($1)", removed)
    await db.execute(
        "SELECT penstock.move_payments($1, ARRAY['SCHEDULED'], 'CANCELLED')",
        ["cancelled and removed"],
    )


async def bring_invoices_into_each_state(db: Connection) -> None:
    """They have no payment: their instants are those of the kernel."""
    await db.execute(f"{INSERT} ('INVOICE', 'InvoiceWorkflow', 'invoices')")
    # The items are those of the kernel alone, some of them with an order key.
    await db.execute("UPDATE penstock.lane SET owner = NULL, guards = '{}' WHERE name = 'invoice'")
    lane = await set_lane(
        db, "invoice", who="test", ordering="per_key", dispatch_interval=timedelta(0)
    )
    for name, ending in ENDINGS.items():
        await put(db, lane, key=f"i-{name}", at=AT_FOUR)
        await attempt_once(db, lane, ending, now=AT_FOUR)
    await put(db, lane, key="i-leased", at=AT_FOUR)
    await take(db, lane, now=AT_FOUR)
    for name in ("i-ready", "i-parked"):
        await put(db, lane, key=name, order_key="ada", at=AT_FOUR)
    await db.execute(
        "INSERT INTO penstock.payment_exec_context"
        " (payment_id, item_type, context_json, context_version)"
        " SELECT key, 'INVOICE', '{}', 1 FROM penstock.item WHERE lane_id = $1",
        lane.lane_id,
    )


@pytest.mark.covers("A54")
async def test_a_claim_on_the_queue_fails_and_names_what_replaces_it(session: Connection) -> None:
    """It would lock rows that claim nothing, and two processes would both go on."""
    statement = """
        SELECT payment_id FROM PAYMENT_EXEC_QUEUE
        WHERE item_type = 'PAYMENT'
          AND (
            (queue_status = 'READY' AND scheduled_exec_time <= now() AND retry_count < 3)
            OR
            (queue_status = 'CLAIMED' AND claimed_at <= now())
          )
        ORDER BY scheduled_exec_time ASC
        FETCH FIRST 500 ROWS ONLY
        FOR UPDATE SKIP LOCKED
    """
    with pytest.raises(asyncpg.WrongObjectTypeError, match="penstock_worker_dispatches_payments"):
        await session.fetch(statement)


async def test_a_write_to_the_queue_names_what_replaces_it(session: Connection) -> None:
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="save_context_and_enqueue"):
        await session.execute("INSERT INTO payment_exec_queue (payment_id) VALUES ('p-1')")
