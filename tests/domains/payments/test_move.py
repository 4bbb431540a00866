"""A payment moves from one status to the next, once, whoever asks for it."""

import asyncio

import asyncpg
import pytest

from penstock.postgres.pool import Pool

STATUSES = (
    "SCHEDULED", "ACCEPTED", "PROCESSING", "SETTLED", "REJECTED", "RETURNED", "CANCELLED", "UNKNOWN"
)  # fmt: skip
INSERT = """
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
        rail_type, content_hash, created_by, created_at, updated_at)
    SELECT id, 'PAYMENT', $2, 12.50, 'EUR', '{}', '{}', 'shop', 'simulator', repeat('a', 64),
        'test', now(), now()
    FROM unnest($1::text[]) AS id
"""
ALLOWED = {
    ("SCHEDULED", "ACCEPTED"), ("SCHEDULED", "CANCELLED"), ("SCHEDULED", "REJECTED"),
    ("ACCEPTED", "PROCESSING"), ("ACCEPTED", "REJECTED"), ("ACCEPTED", "UNKNOWN"),
    ("ACCEPTED", "SETTLED"), ("ACCEPTED", "RETURNED"),
    ("PROCESSING", "SETTLED"), ("PROCESSING", "REJECTED"), ("PROCESSING", "RETURNED"),
    ("PROCESSING", "UNKNOWN"), ("UNKNOWN", "PROCESSING"), ("UNKNOWN", "SETTLED"),
    ("UNKNOWN", "REJECTED"), ("UNKNOWN", "RETURNED"), ("SETTLED", "RETURNED"),
    ("SCHEDULED", "PROCESSING"), ("REJECTED", "PROCESSING"), ("REJECTED", "SETTLED"),
    ("REJECTED", "RETURNED"), ("REJECTED", "UNKNOWN"),
}  # fmt: skip


async def move(db: Pool, ids: list[str], *, before: str, after: str) -> set[str]:
    rows = await db.fetch("SELECT penstock.move_payments($1, ARRAY[$2], $3)", ids, before, after)
    return {row[0] for row in rows}


async def test_of_two_movers_at_once_each_payment_has_one(db: Pool) -> None:
    """Both would send an instruction to the rail."""
    ids = [f"p-{number}" for number in range(200)]
    await db.execute(INSERT, ids, "SCHEDULED")

    moved = await asyncio.gather(
        *(move(db, given, before="SCHEDULED", after="ACCEPTED") for given in (ids, ids[::-1]) * 4)
    )

    assert sorted(each for one in moved for each in one) == sorted(ids)


async def test_a_payment_that_is_not_as_expected_is_left_out(db: Pool) -> None:
    await db.execute(INSERT, ["p-1"], "SCHEDULED")
    await db.execute(INSERT, ["p-2"], "CANCELLED")

    moved = await move(db, ["p-1", "p-2", "nobody"], before="SCHEDULED", after="ACCEPTED")

    assert moved == {"p-1"}
    rows = await db.fetch("SELECT payment_id, status, accepted_at FROM penstock.payment ORDER BY 1")
    assert [(row[0], row[1], row[2] is not None) for row in rows] == [
        ("p-1", "ACCEPTED", True),
        ("p-2", "CANCELLED", False),
    ]


async def test_what_a_move_brings_is_stored_and_nothing_else_is_lost(db: Pool) -> None:
    await db.execute(INSERT, ["p-1", "p-2"], "PROCESSING")

    for before, after, reason, reference in (
        ("PROCESSING", "UNKNOWN", "timed out", "r-1"),
        ("UNKNOWN", "REJECTED", None, None),
    ):
        await db.execute(
            "SELECT penstock.move_payments(ARRAY['p-1'], ARRAY[$1], $2,"
            " reasons => ARRAY[$3], rail_references => ARRAY[$4])",
            before, after, reason, reference,
        )  # fmt: skip

    row = await db.fetchrow("SELECT * FROM penstock.payment WHERE payment_id = 'p-1'")
    assert row is not None
    assert (row["status"], row["reason"], row["rail_reference"]) == ("REJECTED", "timed out", "r-1")
    assert row["ended_at"] is not None


@pytest.mark.parametrize("before", STATUSES)
async def test_only_listed_moves_are_possible(db: Pool, before: str) -> None:
    """A settled payment that becomes scheduled again would be paid again."""
    await db.execute(INSERT, [f"{before}-{after}" for after in STATUSES], before)

    refused = set[str]()
    for after in STATUSES:
        try:
            await move(db, [f"{before}-{after}"], before=before, after=after)
        except asyncpg.PostgresError as error:
            refused.add(f"{getattr(error, 'sqlstate', None)} {after}")

    possible = {after for first, after in ALLOWED if first == before}
    assert refused == {f"PS409 {after}" for after in STATUSES if after not in possible}


@pytest.mark.parametrize("before", STATUSES)
async def test_an_update_cannot_skip_the_listed_moves(db: Pool, before: str) -> None:
    """Also not of the owner, in SQL: the status decides whether a payment is paid."""
    await db.execute(INSERT, [f"{before}-{after}" for after in STATUSES], before)

    refused = set[str]()
    for after in STATUSES:
        try:
            await db.execute(
                "UPDATE penstock.payment SET status = $2 WHERE payment_id = $1",
                f"{before}-{after}", after,
            )  # fmt: skip
        except asyncpg.PostgresError as error:
            refused.add(f"{getattr(error, 'sqlstate', None)} {after}")

    possible = {after for first, after in ALLOWED if first == before} | {before}
    assert refused == {f"PS409 {after}" for after in STATUSES if after not in possible}


async def test_a_refused_update_names_the_payment_and_both_statuses(db: Pool) -> None:
    await db.execute(INSERT, ["p-1"], "SETTLED")

    with pytest.raises(asyncpg.PostgresError) as raised:
        await db.execute("UPDATE penstock.payment SET status = 'SCHEDULED'")

    assert str(raised.value).startswith(
        "payment 'p-1': a payment cannot move from SETTLED to 'SCHEDULED'"
    )
    assert "penstock.move_payments" in str(getattr(raised.value, "hint", ""))
