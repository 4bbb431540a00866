"""Rows of the archive without a worker: what tests of seals and retention need."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from penstock.domains.outbox.audit.seal import seal
from penstock.domains.outbox.audit.verify import Verified, verify
from penstock.postgres.pool import Connection, Pool, Queries

ADD: LiteralString = """
    WITH made AS (
        SELECT gen_random_uuid() AS attempt_id, gen_random_uuid() AS outbox_id, n,
            nextval('penstock.item_id') AS item_id
        FROM generate_series(1, $1::integer) AS n
    ), instructed AS (
        INSERT INTO penstock.outbox_instruction
            (outbox_id, item_id, instruction_id, participant_id, sequence_id, idempotency_key,
             rail_type, payload, amount, currency, created_at, created_by)
        SELECT outbox_id, item_id, 'i-' || outbox_id, 'p-' || item_id, 1, 'k', 'simulator',
            jsonb_build_object('amount', '12.50', 'currency', 'EUR', 'n', n), 12.50, 'EUR', $2,
            'test'
        FROM made
    )
    INSERT INTO penstock.outbox_attempt
        (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, rail_reference,
         latency_ms, created_at, token)
    SELECT attempt_id, outbox_id, 1, 'DISPATCHED', $2, $2, 'r-' || n, 7, $2, 1
    FROM made
    RETURNING attempt_id
"""


async def add(db: Queries, count: int = 1, *, at: datetime | None = None) -> list[UUID]:
    """Archive attempts of new instructions, in the transaction of `db`; return their ids."""
    rows = await db.fetch(ADD, count, at or datetime.now(UTC))
    return [row["attempt_id"] for row in rows]


async def seal_all(db: Pool, *, rows_max: int = 1_000) -> int:
    """Seal until nothing is left, and return how many rows that were."""
    total = 0
    while sealed := await seal(db, rows_max=rows_max):
        total += sealed
    return total


async def sealed_ids(db: Queries) -> list[UUID]:
    """Return the rows of all seals, in the order of the chain."""
    rows = await db.fetch(
        "SELECT unnest(attempt_ids) AS id FROM penstock.outbox_seal ORDER BY seal_no"
    )
    return [row["id"] for row in rows]


async def verified(db: Pool) -> Verified:
    async with db.acquire() as connection:
        return await verify(connection)


def found(verified: Verified) -> list[tuple[str, UUID | None]]:
    """Return what is wrong, as pairs of fault and row."""
    return [(each.fault, each.attempt_id) for each in verified.faults]


async def tamper(db: Pool, statements: Iterable[LiteralString], *values: object) -> None:
    """Change the archive as a superuser can: no trigger runs in such a session."""
    async with db.acquire() as superuser:
        await superuser.execute("SET session_replication_role = replica")
        try:
            for statement in statements:
                await superuser.execute(statement, *values)
        finally:
            await superuser.execute("RESET session_replication_role")


async def begin(connection: Connection) -> None:
    """Open a transaction that tests end by hand, with COMMIT or ROLLBACK."""
    await connection.execute("BEGIN")
