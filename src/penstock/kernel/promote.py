"""Promote the followers of an order key when its head ends, with SQL functions."""

from collections.abc import Sequence

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

PROMOTE = statement(__package__, "promote.sql")
BURY_HEADS = statement(__package__, "bury_heads.sql")


async def promote(db: Connection, lane_id: int, order_keys: Sequence[str]) -> None:
    """Promote the next item of each key, whose head is done or cancelled in this transaction.

    A key that a producer has locked to park an item is left to the sweeper, not waited for.
    """
    await db.execute(PROMOTE, lane_id, order_keys)


async def bury_heads(db: Connection, lane_id: int, heads: Sequence[tuple[int, str]]) -> None:
    """Apply the lane's `on_dead_head` to heads (id, order key) that died in this transaction."""
    ids, order_keys = zip(*heads, strict=True)
    await db.execute(BURY_HEADS, lane_id, ids, order_keys)
