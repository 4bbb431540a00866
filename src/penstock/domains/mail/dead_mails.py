"""Write a failed result, and an event, for recipients of dead mails that have none.

The sweeper ends a mail whose deadline has passed or whose attempts were lost, and a handler one
that it cannot build. The result is what makes a repeat harmless, so a cursor is only a hint.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import monotonic

from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.contract.announce import announce_apart
from penstock.domains.mail.event import Announce, MailEvent
from penstock.domains.mail.lanes import BULK_LANE, LANE
from penstock.domains.mail.metrics import RECIPIENTS
from penstock.postgres.pool import Pool, Row, database_away
from penstock.postgres.statement import statement

LIST_DEAD_MAILS = statement(__package__, "list_dead_mails.sql")
FAIL_RECIPIENTS = statement(__package__, "fail_recipients.sql")

LOOK_INTERVAL = timedelta(seconds=5)
# Instants are those of transactions that began before they became visible; none of the kernel's
# that end items takes so long.
OVERLAP = timedelta(minutes=1)
REWIND_INTERVAL = timedelta(hours=1)  # One that took longer is found then.
PAGE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which dead mail a lane was looked at."""

    died_at: datetime
    mail_id: int


BEGINNING = Position(datetime.min.replace(tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMails:
    """The service that looks for dead mails; any number of processes may run it."""

    pool: Pool
    announce: Announce
    log: Logger
    meter: Meter

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set. Raises DatabaseAway; supervise it."""
        positions = dict.fromkeys((LANE, BULK_LANE), BEGINNING)
        rewound_at = monotonic()
        while not stop.is_set():
            if monotonic() - rewound_at > REWIND_INTERVAL.total_seconds():
                positions = dict.fromkeys(positions, BEGINNING)
                rewound_at = monotonic()
            with database_away():
                for lane, position in positions.items():
                    positions[lane] = _step_back(await self.fail(lane, since=position))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_INTERVAL.total_seconds())

    async def fail(
        self, lane: str, *, since: Position = BEGINNING, now: datetime | None = None
    ) -> Position:
        """Give recipients of mails that died after `since` their results; return the last mail."""
        while True:
            page = await self.pool.fetch(
                LIST_DEAD_MAILS, lane, since.died_at, since.mail_id, PAGE_MAX
            )
            open_ids = [row["id"] for row in page if row["is_open"]]
            if open_ids:
                await self._fail(open_ids, now=now)
            if page:
                since = Position(page[-1]["died_at"], page[-1]["id"])
            if len(page) < PAGE_MAX:
                return since

    async def _fail(self, mail_ids: Sequence[int], *, now: datetime | None) -> None:
        async with self.pool.acquire() as db, db.transaction():
            written = await db.fetch(FAIL_RECIPIENTS, mail_ids, now)
            events = [_event(row) for row in written]
            if events:
                await announce_apart(db, events, announce=self.announce, log=self.log)
        if written:
            self.meter.count(RECIPIENTS, len(written), result="failed")


def _step_back(position: Position) -> Position:
    if position == BEGINNING:
        return position
    return replace(position, died_at=position.died_at - OVERLAP, mail_id=0)


def _event(row: Row) -> MailEvent:
    return MailEvent(
        type="mail.failed",
        mail_id=row["mail_id"],
        recipient_no=row["recipient_no"],
        recipient=row["recipient"],
        tags=row["tags"],
        reason=row["class"],
    )
