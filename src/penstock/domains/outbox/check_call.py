"""The last check before a call: the lease is still valid, and nothing stops the instruction.

Checks at the same time share one statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from penstock.base.clock import boot_seconds
from penstock.base.coalesce import Coalescer
from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

CHECK_CALL = statement(__package__, "check_call.sql")

ANSWER_TIMEOUT = timedelta(seconds=5)  # A healthy database answers in a millisecond.
CALLS_MAX = 1_000  # Calls that share one statement.


class IntendedCall(NamedTuple):
    """A call that is about to be made."""

    token: int
    item_id: int
    rail_type: str
    participant_id: str
    outbox_id: UUID


class CallPermit(NamedTuple):
    """Whether a call may be made: until `until` on the clock of `boot_seconds`, unless `stop`."""

    until: float
    stop: str | None

    @property
    def is_over(self) -> bool:
        """Whether the lease has expired, as far as this process knows.

        A process that was suspended after the answer notices it here.
        """
        return boot_seconds() >= self.until


@dataclass(slots=True)
class CallChecker:
    """Asks the database right before calls."""

    pool: Pool
    _checks: Coalescer[IntendedCall, CallPermit] = field(init=False)

    def __post_init__(self) -> None:
        self._checks = Coalescer(self._check_all, batch_max=CALLS_MAX)

    async def check(self, call: IntendedCall) -> CallPermit:
        """Return whether the call may be made now; raises DatabaseAway."""
        return await self._checks.ask(call)

    async def _check_all(self, calls: Sequence[IntendedCall]) -> list[CallPermit]:
        tokens, item_ids, rail_types, participant_ids, outbox_ids = zip(*calls, strict=True)
        asked_at = boot_seconds()
        with database_away():
            rows = await self.pool.fetch(
                CHECK_CALL,
                tokens,
                item_ids,
                rail_types,
                participant_ids,
                outbox_ids,
                None,
                timeout=ANSWER_TIMEOUT.total_seconds(),
            )
        # A lease that is over has no time left: its permit was over before it was given.
        return [CallPermit(asked_at + (left or 0.0), stop) for left, stop in rows]
