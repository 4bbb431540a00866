"""The chain of seals: each row once, and every later change of a row has a name."""

import random
from contextlib import AsyncExitStack
from typing import LiteralString
from uuid import UUID, uuid4

import pytest

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.audit.seal import seal
from penstock.domains.outbox.audit.verify import Head, parse_head, read_head, verify
from penstock.postgres.pool import Connection, Pool, connect
from tests.domains.outbox.audit.archived import (
    add,
    begin,
    found,
    seal_all,
    sealed_ids,
    tamper,
    verified,
)

FORGE: LiteralString = """
    INSERT INTO penstock.outbox_attempt
        (attempt_id, outbox_id, attempt_no, state, claimed_at, created_at, token, era, xid)
    SELECT $2, outbox_id, attempt_no, 'FAILED', claimed_at, created_at, token, era,
        (xid::text::bigint - 1)::text::xid8
    FROM penstock.outbox_attempt WHERE attempt_id = $1
"""


@pytest.mark.parametrize("seed", range(10))
async def test_each_row_is_sealed_once_in_whatever_order_transactions_commit(
    db: Pool, seed: int
) -> None:
    """A sealer that goes by time or by a sequence misses rows that commit late."""
    chance = random.Random(seed)
    committed: set[UUID] = set()
    written: dict[int, list[UUID]] = {}

    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(db.acquire()) for _ in range(5)]
        for _ in range(60):
            number = chance.randrange(len(writers))
            writer = writers[number]
            match chance.choice(["write", "write", "commit", "roll back", "seal"]):
                case "write":
                    if number not in written:
                        await begin(writer)
                    written.setdefault(number, []).extend(await add(writer, chance.randint(1, 3)))
                case "commit" if number in written:
                    await writer.execute("COMMIT")
                    committed |= set(written.pop(number))
                case "roll back" if number in written:
                    await writer.execute("ROLLBACK")
                    del written[number]
                case "seal":
                    await seal(db, rows_max=chance.randint(1, 5))
                case _:
                    pass
        for number, ids in written.items():
            await writers[number].execute("COMMIT")
            committed |= set(ids)
    await seal_all(db, rows_max=4)

    sealed = await sealed_ids(db)
    assert len(sealed) == len(set(sealed))
    assert set(sealed) == committed
    assert (await verified(db)).faults == []


async def test_a_row_waits_for_every_older_transaction(db: Pool) -> None:
    """The older one may still write a row that belongs before it."""
    async with db.acquire() as older:
        await begin(older)
        (first,) = await add(older)
        (second,) = await add(db)

        assert await seal(db) == 0
        await older.execute("COMMIT")

    assert await seal(db) == 2
    assert await sealed_ids(db) == [first, second]


async def test_a_sealer_that_dies_leaves_the_chain_as_it_was(db: Pool, dsn: str) -> None:
    await add(db, 3)
    dying = await connect(dsn)
    await begin(dying)
    assert await dying.fetchval("SELECT penstock.seal_outbox(2)") == 2
    dying.terminate()

    async def sealed_rows() -> int:
        return await seal_all(db)

    total = 0
    while total < 3:
        total += await sealed_rows()

    assert total == 3
    assert (await verified(db)).faults == []


async def test_one_session_seals_at_a_time(db: Pool) -> None:
    await add(db, 3)
    async with db.acquire() as one:
        await begin(one)
        assert await one.fetchval("SELECT penstock.seal_outbox(2)") == 2

        assert await seal(db) == 0
        await one.execute("COMMIT")

    assert await seal(db) == 1
    assert (await verified(db)).faults == []


async def test_an_untouched_archive_has_no_faults(db: Pool) -> None:
    await add(db, 7)
    await seal_all(db, rows_max=3)
    await add(db, 2)

    result = await verified(db)

    assert result.faults == []
    assert (result.seals, result.rows, result.unsealed) == (3, 7, 2)


CHANGES: dict[str, LiteralString] = {
    "state": "UPDATE penstock.outbox_attempt SET state = 'FAILED' WHERE attempt_id = $1",
    "reference": "UPDATE penstock.outbox_attempt SET rail_reference = 'x' WHERE attempt_id = $1",
    "NULL to empty": "UPDATE penstock.outbox_attempt SET error_code = '' WHERE attempt_id = $1",
    "instant": "UPDATE penstock.outbox_attempt SET completed_at = completed_at "
    "+ interval '1 us' WHERE attempt_id = $1",
    "its instruction's amount": "UPDATE penstock.outbox_instruction AS i SET amount = 12.5 "
    "FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id AND a.attempt_id = $1",
    "its instruction's payload": "UPDATE penstock.outbox_instruction AS i SET payload = '{}' "
    "FROM penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id AND a.attempt_id = $1",
    "its instruction": "DELETE FROM penstock.outbox_instruction AS i "
    "USING penstock.outbox_attempt AS a WHERE a.outbox_id = i.outbox_id AND a.attempt_id = $1",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_changed_row_is_named(db: Pool, change: LiteralString) -> None:
    ids = await add(db, 10)
    await seal_all(db, rows_max=4)

    await tamper(db, [change], ids[5])

    assert found(await verified(db)) == [("changed", ids[5])]


async def test_a_removed_row_is_named(db: Pool) -> None:
    ids = await add(db, 10)
    await seal_all(db, rows_max=4)

    await tamper(db, ["DELETE FROM penstock.outbox_attempt WHERE attempt_id = $1"], ids[0])

    assert found(await verified(db)) == [("removed", ids[0])]


async def test_a_row_that_is_inserted_among_sealed_ones_is_named(db: Pool) -> None:
    ids = await add(db, 10)
    await seal_all(db, rows_max=4)
    forged = uuid4()

    await tamper(db, [FORGE], ids[5], forged)

    assert found(await verified(db)) == [("inserted", forged)]


SEAL_CHANGES: dict[str, tuple[LiteralString, int]] = {
    "a hash": ("UPDATE penstock.outbox_seal SET hash = sha256('x') WHERE seal_no = 2", 2),
    "the rows": (
        "UPDATE penstock.outbox_seal SET row_hashes[1] = sha256('x') WHERE seal_no = 2",
        2,
    ),
    "the place": ("UPDATE penstock.outbox_seal SET last_xid = '5' WHERE seal_no = 2", 2),
    "a mark of retention": (
        "UPDATE penstock.outbox_seal SET attempt_ids = NULL, row_hashes = NULL WHERE seal_no = 2",
        2,
    ),
    "the link": (
        "UPDATE penstock.outbox_seal SET previous_hash = sha256('x') WHERE seal_no = 2",
        2,
    ),
    "a missing seal": ("DELETE FROM penstock.outbox_seal WHERE seal_no = 2", 3),
    "a missing beginning": ("DELETE FROM penstock.outbox_seal WHERE seal_no = 1", 2),
}


@pytest.mark.parametrize(("change", "seal_no"), SEAL_CHANGES.values(), ids=SEAL_CHANGES)
async def test_a_changed_chain_is_found(db: Pool, change: LiteralString, seal_no: int) -> None:
    """Seals that were changed along with a row must not hide it."""
    await add(db, 10)
    await seal_all(db, rows_max=4)

    await tamper(db, [change])

    faults = (await verified(db)).faults
    assert seal_no in {each.seal_no for each in faults if each.fault == "seal"}


async def test_a_chain_that_was_written_anew_differs_from_the_head_that_was_kept(
    db: Pool,
) -> None:
    """Within one database nobody can prove that; a hash elsewhere can."""
    await add(db, 10)
    await seal_all(db, rows_max=4)
    async with db.acquire() as connection:
        kept = await read_head(connection)
        assert kept is not None
        assert kept.seal_no == 3
        await tamper(db, ["UPDATE penstock.outbox_attempt SET state = 'FAILED'"])
        await tamper(db, ["DELETE FROM penstock.outbox_seal"])
        await seal_all(db, rows_max=4)

        assert (await verify(connection)).faults == []
        faults = (await verify(connection, kept=kept)).faults
        shorter = (await verify(connection, kept=Head(9, kept.hash))).faults

    assert [(each.fault, each.seal_no) for each in faults] == [("seal", 3)]
    assert [(each.fault, each.seal_no) for each in shorter] == [("seal", 9)]


async def test_a_restored_archive_goes_on_in_a_new_era(db: Pool) -> None:
    """In another cluster, numbers of transactions may start below those that are sealed."""
    before = await add(db, 5)
    await seal_all(db, rows_max=2)
    unsealed = await add(db, 2)
    # As after pg_restore elsewhere: rows of this cluster's first transactions, before any seal.
    await db.execute("UPDATE penstock.outbox_era SET system_id = 1")
    early = await add(db, 1)
    await tamper(
        db, ["UPDATE penstock.outbox_attempt SET xid = '3' WHERE attempt_id = $1"], early[0]
    )

    assert await seal(db) == 3
    later = await add(db, 4)
    assert await seal_all(db) == 4

    assert sorted(await sealed_ids(db)) == sorted([*before, *unsealed, *early, *later])
    assert (await verified(db)).faults == []
    forged = (await add(db, 1))[0]
    await tamper(db, ["UPDATE penstock.outbox_attempt SET era = 1 WHERE attempt_id = $1"], forged)
    assert found(await verified(db)) == [("inserted", forged)]
    await tamper(
        db, ["UPDATE penstock.outbox_attempt SET state = 'FAILED' WHERE attempt_id = $1"], early[0]
    )
    assert ("changed", early[0]) in found(await verified(db))


async def test_the_hash_of_a_row_does_not_depend_on_the_session(db: Pool) -> None:
    """Another time zone or style of dates must not make rows look changed."""
    await add(db, 3)
    await seal_all(db)

    async with db.acquire() as connection:
        await set_style(connection)
        result = await verify(connection)

    assert result.faults == []


async def set_style(connection: Connection) -> None:
    await connection.execute(
        "SET TimeZone = 'Asia/Kathmandu'; SET DateStyle = 'SQL, DMY'; "
        "SET IntervalStyle = 'iso_8601'; SET extra_float_digits = -5; SET bytea_output = 'escape'"
    )


@pytest.mark.parametrize("text", ["", "17", "0:" + "a" * 64, "17:" + "g" * 64, "x:" + "a" * 64])
def test_a_head_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_head(text, field="--expect")


def test_a_head_is_read_as_it_is_printed() -> None:
    head = Head(17, "ab" * 32)

    assert parse_head(f"{head}\n", field="--expect") == head
