"""Check leases in the database before handlers make external calls, and write start marks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.base.coalesce import Coalescer
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

IS_LEASE_VALID = statement(__package__, "is_lease_valid.sql")
MARK_STARTED = statement(__package__, "mark_started.sql")

ANSWER_TIMEOUT = timedelta(seconds=5)  # A healthy database answers in a millisecond.
MARKS_MAX = 1_000  # Calls that share one statement.


@dataclass(slots=True)
class LeaseFence:
    """Asks the database whether leases are valid, and writes start marks."""

    pool: Pool
    _marks: Coalescer[tuple[int, Sequence[int]], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._marks = Coalescer(self._mark_all, batch_max=MARKS_MAX)

    async def is_valid(self, token: int, item_id: ItemId) -> bool:
        """Return whether the lease has not expired and holds the item; raises DatabaseAway."""
        with database_away():
            return bool(
                await self.pool.fetchval(
                    IS_LEASE_VALID, token, item_id, None, timeout=ANSWER_TIMEOUT.total_seconds()
                )
            )

    async def mark_started(self, token: int, item_ids: Sequence[ItemId]) -> bool:
        """Commit that items of a lease are about to start; return whether they may.

        Calls at the same time share one statement. Raises DatabaseAway.
        """
        return await self._marks.ask((token, item_ids))

    async def _mark_all(self, marks: Sequence[tuple[int, Sequence[int]]]) -> list[bool]:
        pairs = [(token, item_id) for token, item_ids in marks for item_id in item_ids]
        with database_away():
            rows = await self.pool.fetch(
                MARK_STARTED,
                [token for token, _ in pairs],
                [item_id for _, item_id in pairs],
                None,
                timeout=ANSWER_TIMEOUT.total_seconds(),
            )
        valid = {row["token"] for row in rows}
        return [token in valid for token, _ in marks]
