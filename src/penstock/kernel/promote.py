"""Promote the followers of an order key when its head ends, with SQL functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

PROMOTE = statement(__package__, "promote.sql")
PROMOTE_VACATED = statement(__package__, "promote_vacated.sql")
BURY_HEADS = statement(__package__, "bury_heads.sql")

VACATED_MAX = 1_000  # Keys in one transaction.


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many vacated keys got a new head or were closed, and how many are still locked."""

    keys: int
    keys_left: int


async def promote(db: Connection, lane_id: int, order_keys: Sequence[str]) -> int:
    """Promote the next item of each key, whose head is done or cancelled in this transaction.

    A key that a producer has locked to park an item is not waited for: it is vacated, and promoted
    later. Returns the number of these keys.
    """
    return await db.fetchval(PROMOTE, lane_id, order_keys)


async def promote_vacated(db: Connection, *, lane_id: int | None = None) -> Promoted:
    """Promote keys that could not be promoted when their head ended, of one lane or of all."""
    found = left = 0
    async with db.transaction():
        for row in await db.fetch(PROMOTE_VACATED, VACATED_MAX, lane_id):
            found += len(row["order_keys"])
            left += await promote(db, row["lane_id"], row["order_keys"])
    return Promoted(found - left, left)


async def bury_heads(db: Connection, lane_id: int, heads: Sequence[tuple[int, str]]) -> None:
    """Apply the lane's `on_dead_head` to heads (id, order key) that died in this transaction."""
    ids, order_keys = zip(*heads, strict=True)
    await db.execute(BURY_HEADS, lane_id, ids, order_keys)
