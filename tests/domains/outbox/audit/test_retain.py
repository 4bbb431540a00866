"""The archive by month: partitions ahead of time, and months that are dropped with their seals."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import LiteralString
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from penstock.base.log import get_logger
from penstock.domains.outbox.audit.retain import (
    DAYS_KEPT,
    ArchiveRetainer,
    drop_month,
    list_months,
    open_months,
)
from penstock.domains.outbox.audit.verify import read_head, verify
from penstock.domains.outbox.inspect import read_story
from penstock.domains.outbox.lanes import LANE, POLICY
from penstock.domains.outbox.reconcile.results import LOCK_RESULTS
from penstock.kernel.lane import create_lane
from penstock.postgres.pool import Pool
from tests.domains.outbox.audit.archived import add, found, seal_all, tamper, verified
from tests.fault.waiting import is_blocked, until

PATIENCE = 20.0  # Seconds; what is waited for takes a few milliseconds.

JAN = datetime(2030, 1, 15, tzinfo=UTC)
FEB = datetime(2030, 2, 15, tzinfo=UTC)
MAR = datetime(2030, 3, 15, tzinfo=UTC)
DEC = datetime(2030, 12, 31, 23, 59, tzinfo=UTC)
JANUARY = date(2030, 1, 1)

FORGE: LiteralString = """
    INSERT INTO penstock.outbox_attempt
        (attempt_id, outbox_id, attempt_no, state, claimed_at, created_at, xid)
    SELECT $2, outbox_id, 1, 'FAILED', claimed_at, '2030-01-15', (xid::text::bigint - 1)::text::xid8
    FROM penstock.outbox_attempt WHERE attempt_id = $1
"""


async def partitions(db: Pool) -> list[str]:
    rows = await db.fetch(
        "SELECT relname AS name FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'penstock.outbox_attempt'::regclass ORDER BY 1"
    )
    return [row["name"].removeprefix("outbox_attempt_") for row in rows]


async def count(db: Pool) -> int:
    return await db.fetchval("SELECT count(*) FROM penstock.outbox_attempt")


async def test_months_are_opened_ahead_and_once(db: Pool) -> None:
    assert await open_months(db, now=DEC) == [
        date(2030, 12, 1), date(2031, 1, 1), date(2031, 2, 1),
    ]  # fmt: skip
    assert await open_months(db, now=DEC) == []
    assert await partitions(db) == ["203012", "203101", "203102", "kept"]


async def test_rows_that_came_before_their_month_was_opened_move_into_it(db: Pool) -> None:
    """No worker may have run when they were written, and then nobody opened the month."""
    ids = [*await add(db, 3, at=JAN), *await add(db, 2, at=FEB)]
    await seal_all(db)

    await open_months(db, now=JAN)

    rows = await db.fetch(
        "SELECT relname FROM penstock.outbox_attempt AS a "
        "JOIN pg_class ON pg_class.oid = a.tableoid"
    )
    assert {row["relname"] for row in rows} == {"outbox_attempt_203001", "outbox_attempt_203002"}
    assert len(rows) == len(ids)
    assert (await verified(db)).faults == []


async def test_who_writes_meanwhile_waits_for_the_month_and_does_not_deadlock(db: Pool) -> None:
    """The first worker of a busy database opens the month in which others archive already."""
    await add(db, 1, at=JAN)
    async with db.acquire() as writer, asyncio.TaskGroup() as group, writer.transaction():
        # As the statement that writes does before it has found the partition.
        await writer.execute("LOCK TABLE ONLY penstock.outbox_attempt IN ROW EXCLUSIVE MODE")
        opened = group.create_task(open_months(db, now=JAN))
        await until(partial(is_blocked, db), within=PATIENCE)
        await add(writer, 1, at=JAN)

    assert JANUARY in opened.result()
    assert await count(db) == 2


async def test_who_reads_meanwhile_does_not_deadlock_with_a_month_that_is_dropped(
    db: Pool,
) -> None:
    await open_months(db, now=JAN)
    await add(db, 1, at=JAN)
    await seal_all(db)
    async with db.acquire() as reader, asyncio.TaskGroup() as group, reader.transaction():
        await reader.execute("LOCK TABLE ONLY penstock.outbox_attempt IN ACCESS SHARE MODE")
        dropped = group.create_task(drop_month(db, JANUARY))
        await until(partial(is_blocked, db), within=PATIENCE)
        assert await reader.fetchval("SELECT count(*) FROM penstock.outbox_attempt") == 1

    assert dropped.result() == 1


async def test_a_failure_that_moves_into_its_month_suspends_nobody_again(db: Pool) -> None:
    """Its participant was resumed since it failed."""
    (failed,) = await add(db, 1, at=JAN)
    await tamper(
        db, ["UPDATE penstock.outbox_attempt SET state = 'FAILED' WHERE attempt_id = $1"], failed
    )
    await db.execute(
        "INSERT INTO penstock.outbox_failure_policy (scope, name, policy)"
        " VALUES ('all', '*', 'suspend')"
    )

    await open_months(db, now=JAN)

    assert await db.fetchval("SELECT count(*) FROM penstock.outbox_suspension") == 0


REFUSED: dict[str, LiteralString] = {
    "update": "UPDATE penstock.outbox_attempt_203001 SET state = 'FAILED'",
    "delete": "DELETE FROM penstock.outbox_attempt_203001",
    "truncate": "TRUNCATE penstock.outbox_attempt_203001",
    "truncate of the rest": "TRUNCATE penstock.outbox_attempt_kept",
    "truncate of all": "TRUNCATE penstock.outbox_attempt",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("moves", [False, True], ids=["empty", "moved"])
async def test_a_month_is_append_only_too(
    db: Pool, statement: LiteralString, *, moves: bool
) -> None:
    if moves:
        await add(db, at=JAN)
    await open_months(db, now=JAN)
    await add(db, at=JAN)

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await db.execute(statement)


async def test_seals_hold_rows_of_one_month(db: Pool) -> None:
    async with db.acquire() as connection, connection.transaction():
        for at in (JAN, FEB, JAN):
            await add(connection, 2, at=at)

    await seal_all(db)

    months = await db.fetch("SELECT month, row_count FROM penstock.outbox_seal ORDER BY seal_no")
    assert sum(row["row_count"] for row in months) == 6
    assert {row["month"] for row in months} == {date(2030, 1, 1), date(2030, 2, 1)}
    assert (await verified(db)).faults == []


async def test_a_dropped_month_leaves_its_hashes_and_a_chain_that_verifies(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 5, at=JAN)
    kept = await add(db, 3, at=FEB)
    await seal_all(db, rows_max=2)

    dropped = await drop_month(db, JANUARY)

    assert dropped == 5
    assert await partitions(db) == ["203002", "203003", "kept"]
    assert await count(db) == 3
    result = await verified(db)
    assert (result.faults, result.rows) == ([], 3)
    marked = await db.fetch(
        "SELECT kind, attempt_ids IS NULL AS is_marked, hash, rows_hash FROM penstock.outbox_seal "
        "WHERE month = $1 ORDER BY seal_no",
        JANUARY,
    )
    assert all(row["is_marked"] for row in marked)
    assert [row["kind"] for row in marked][-1] == "dropped"
    assert marked[-1]["rows_hash"] == marked[-2]["hash"], "the last hash of the month"
    await seal_all(db)
    await tamper(db, ["DELETE FROM penstock.outbox_attempt WHERE attempt_id = $1"], kept[1])
    assert found(await verified(db)) == [("removed", kept[1])]


async def test_sealing_goes_on_behind_a_dropped_month(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 2, at=JAN)
    await seal_all(db)
    await drop_month(db, JANUARY)

    await add(db, 2, at=FEB)

    assert await seal_all(db) == 2
    assert (await verified(db)).faults == []


async def test_a_row_that_is_forged_into_a_dropped_month_is_named(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 2, at=JAN)
    (kept,) = await add(db, 1, at=FEB)
    await seal_all(db)
    await drop_month(db, JANUARY)
    forged = uuid4()

    await tamper(db, [FORGE], kept, forged)

    assert found(await verified(db)) == [("inserted", forged)]


async def test_a_month_with_rows_that_are_not_sealed_stays(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 2, at=JAN)

    assert await drop_month(db, JANUARY) is None
    assert await count(db) == 2


async def test_a_month_stays_while_an_instruction_of_it_is_not_finished(db: Pool) -> None:
    """Whether it was sent before decides whether it may be sent again."""
    await open_months(db, now=JAN)
    (attempt_id,) = await add(db, 1, at=JAN)
    await seal_all(db)
    await hold(db, attempt_id)

    assert await drop_month(db, JANUARY) is None
    await db.execute("DELETE FROM penstock.held")
    assert await drop_month(db, JANUARY) == 1


async def hold(db: Pool, attempt_id: UUID) -> None:
    async with db.acquire() as connection:
        lane = await create_lane(connection, LANE, who="test", owner="outbox", **POLICY)
        await connection.execute(
            "INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason) "
            "SELECT i.item_id, now(), $1, 1, 0, 'unknown: no answer' "
            "FROM penstock.outbox_attempt JOIN penstock.outbox_instruction AS i USING (outbox_id) "
            "WHERE attempt_id = $2",
            lane.lane_id,
            attempt_id,
        )


async def test_retention_drops_months_that_ended_long_enough_ago(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 1, at=JAN)
    await seal_all(db)

    assert await list_months(db, months_kept=1, now=FEB) == []
    assert await list_months(db, months_kept=1, now=MAR) == [JANUARY]
    await ArchiveRetainer(pool=db, log=get_logger()).retain(now=MAR)
    assert "203001" in await partitions(db), "by default the archive is kept for ever"
    with capture_logs() as lines:
        await ArchiveRetainer(pool=db, log=get_logger(), months_kept=1).retain(now=MAR)

    assert await partitions(db) == ["203002", "203003", "203004", "203005", "kept"]
    (line,) = lines
    assert (line["event"], line["name"], line["row_count"]) == ("archive.dropped", "2030-01", 1)


async def test_a_month_that_has_to_stay_is_logged(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 1, at=JAN)

    with capture_logs() as lines:
        await ArchiveRetainer(pool=db, log=get_logger(), months_kept=1).retain(now=MAR)

    assert [line["event"] for line in lines] == ["archive.kept"]


async def test_a_long_reader_delays_retention_and_nothing_else(db: Pool) -> None:
    await open_months(db, now=JAN)
    await add(db, 1, at=JAN)
    await seal_all(db)
    async with db.acquire() as reader:
        await reader.execute("BEGIN")
        await reader.fetch("SELECT FROM penstock.outbox_attempt")

        with capture_logs() as lines:
            await ArchiveRetainer(pool=db, log=get_logger(), months_kept=1).retain(now=MAR)
        await reader.execute("ROLLBACK")

    assert [line["event"] for line in lines] == ["archive.delayed"]
    assert await count(db) == 1


async def test_sums_of_days_that_no_limit_looks_at_are_removed(db: Pool) -> None:
    """One row for each instruction and each day of a participant would fill the disk for ever."""
    for days in (0, DAYS_KEPT, DAYS_KEPT + 1):
        day = (FEB - timedelta(days=days)).date()
        await db.execute("INSERT INTO penstock.outbox_charge VALUES ($1, $2)", uuid4(), day)
        await db.execute(
            "INSERT INTO penstock.outbox_day_total VALUES ('shop', 'EUR', $1, 5, 10)", day
        )

    await ArchiveRetainer(pool=db, log=get_logger()).retain(now=FEB)

    kept = [(FEB - timedelta(days=DAYS_KEPT)).date(), FEB.date()]
    for table in ("outbox_charge", "outbox_day_total"):
        rows = await db.fetch(f"SELECT day FROM penstock.{table} ORDER BY day")
        assert [row["day"] for row in rows] == kept


OF_ATTEMPT: LiteralString = """
    SELECT i.outbox_id, i.item_id FROM penstock.outbox_instruction AS i
    JOIN penstock.outbox_attempt AS a USING (outbox_id) WHERE a.attempt_id = $1
"""

OPEN: dict[str, LiteralString] = {
    "settlement": "INSERT INTO penstock.outbox_lookup"
    " (item_id, attempt, rail_type, purpose, due_at, since)"
    " SELECT item_id, 1, 'simulator', 'settlement', now(), now()"
    " FROM penstock.outbox_instruction WHERE outbox_id = $1",
    "report": "INSERT INTO penstock.outbox_result"
    " (outbox_id, status, occurred_at, received_at, due_at)"
    " VALUES ($1, 'paid', now(), now(), now())",
}


@pytest.mark.parametrize("statement", OPEN.values(), ids=OPEN)
async def test_a_month_stays_while_a_rail_may_still_decide(
    db: Pool, statement: LiteralString
) -> None:
    """What is settled, returned or reported later is compared with what the archive has."""
    await open_months(db, now=JAN)
    (attempt_id,) = await add(db, 1, at=JAN)
    await seal_all(db)
    outbox_id, item_id = await db.fetchrow(OF_ATTEMPT, attempt_id) or (None, None)
    await db.execute(statement, outbox_id)

    assert await drop_month(db, JANUARY) is None
    await db.execute("DELETE FROM penstock.outbox_lookup WHERE item_id = $1", item_id)
    await db.execute("UPDATE penstock.outbox_result SET applied_at = now()")
    assert await drop_month(db, JANUARY) == 1


async def test_the_last_state_outlives_the_archive(db: Pool) -> None:
    """What REST shows needs a state, and a failed instruction may be sent under another key."""
    await open_months(db, now=JAN)
    (paid,) = await add(db, 1, at=JAN)
    (failed,) = await add(db, 1, at=JAN)
    await tamper(
        db, ["UPDATE penstock.outbox_attempt SET state = 'FAILED' WHERE attempt_id = $1"], failed
    )
    ids = [(await db.fetchrow(OF_ATTEMPT, each) or [])[0] for each in (paid, failed)]
    await db.execute(
        "INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)"
        " SELECT item_id, now(), 0, 1, 0, 'refused' FROM penstock.outbox_instruction"
        " WHERE outbox_id = $1",
        ids[1],
    )
    await seal_all(db)
    assert await drop_month(db, JANUARY) == 2

    views = [(await read_story(db, each)).instruction for each in ids]
    may_repeat = [await db.fetchval("SELECT penstock.outbox_has_failed($1)", each) for each in ids]

    assert [(view.state, view.attempt_count) for view in views] == [
        ("DISPATCHED", 1), ("FAILED", 1),
    ]  # fmt: skip
    assert views[0].rail_reference == "r-1"
    assert may_repeat == [False, True]


FORGED_DROP: LiteralString = """
    SELECT penstock.add_outbox_seal(
        (NULL, 'dropped', NULL, s.month, s.era, s.last_xid, s.last_attempt_id, s.row_count, NULL,
         NULL, s.hash, NULL, NULL)::penstock.outbox_seal)
    FROM penstock.outbox_seal AS s ORDER BY s.seal_no DESC LIMIT 1
"""


async def test_a_month_that_is_only_said_to_be_dropped_is_named(db: Pool) -> None:
    """Whoever can write can append the entry, empty the seals and delete the rows."""
    await open_months(db, now=JAN)
    await add(db, 3, at=JAN)
    await seal_all(db)

    await tamper(
        db,
        [
            FORGED_DROP,
            "UPDATE penstock.outbox_seal SET attempt_ids = NULL, row_hashes = NULL",
            "DELETE FROM penstock.outbox_attempt",
        ],
    )

    (fault,) = (await verified(db)).faults
    assert (fault.fault, fault.seal_no) == ("seal", 2)
    assert "2030-01" in fault.reason


async def test_a_dropped_month_must_be_expected(db: Pool) -> None:
    """With the right to drop partitions the rows are really gone: only a kept seal shows when."""
    await open_months(db, now=JAN)
    await add(db, 3, at=JAN)
    await seal_all(db)
    async with db.acquire() as connection:
        kept = await read_head(connection)
    assert await drop_month(db, JANUARY) == 3

    async with db.acquire() as connection:
        alone = await verify(connection)
        compared = await verify(connection, kept=kept)
        expected = await verify(connection, kept=kept, may_drop=[JANUARY])

    assert [(each.month, each.rows, each.seal_no) for each in alone.dropped] == [(JANUARY, 3, 2)]
    assert alone.faults == expected.faults == []
    assert [(each.fault, each.seal_no) for each in compared.faults] == [("seal", 2)]


async def test_a_refusal_after_the_archive_was_dropped_does_not_return_a_payment(db: Pool) -> None:
    """As RETURNED, what was paid in a dropped month could be sent under another key."""
    await open_months(db, now=JAN)
    (paid,) = await add(db, 1, at=JAN)
    outbox_id = (await db.fetchrow(OF_ATTEMPT, paid) or [])[0]
    await seal_all(db)
    assert await drop_month(db, JANUARY) == 1
    await db.execute(
        "INSERT INTO penstock.outbox_result"
        " (outbox_id, status, occurred_at, received_at, due_at, attempt)"
        " VALUES ($1, 'refused', now(), now(), now(), 1)",
        outbox_id,
    )

    row = await db.fetchrow(LOCK_RESULTS, outbox_id)

    assert row is not None
    assert row["states"] == ["DISPATCHED"]
    assert row["dispatched_codes"] == [None], "paid, whatever its code was"
