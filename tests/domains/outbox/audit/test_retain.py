"""The archive by month: partitions ahead of time, and months that are dropped with their seals."""

from datetime import UTC, date, datetime, timedelta
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
from penstock.domains.outbox.lanes import LANE, POLICY
from penstock.kernel.lane import create_lane
from penstock.postgres.pool import Pool
from tests.domains.outbox.audit.archived import add, found, seal_all, tamper, verified

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
