"""Lines of keys: what happens to the followers when a head ends. The database does the moving."""

from collections.abc import Sequence

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

PROMOTE = statement(__package__, "promote.sql")
BURY_HEADS = statement(__package__, "bury_heads.sql")


async def promote(db: Connection, lane_id: int, order_keys: Sequence[str]) -> None:
    """Let the next of each key go: its head is done or cancelled, in the caller's transaction.

    A key that a producer is just parking behind is left to the sweeper, not waited for.
    """
    await db.execute(PROMOTE, lane_id, order_keys)


async def bury_heads(db: Connection, lane_id: int, heads: Sequence[tuple[int, str]]) -> None:
    """Do as the lane's policy says for heads (id, order key) that have died in this transaction."""
    ids, order_keys = zip(*heads, strict=True)
    await db.execute(BURY_HEADS, lane_id, ids, order_keys)
