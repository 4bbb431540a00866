"""Write how attempts ended for recipients, before their items are settled, fenced by the lease.

Only `sent` is written without a lease too, as nothing else keeps the next attempt from a second
copy. Results of mails that end at the same time go in one statement; while the database is
unavailable the writer repeats.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import msgspec
from msgspec import Struct

from penstock.base.aio import finish, retry_delays
from penstock.base.coalesce import Coalescer
from penstock.base.log import Logger
from penstock.contract.announce import announce_apart
from penstock.domains.mail.event import Announce, MailEvent
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

WRITE_RESULTS = statement(__package__, "write_results.sql")

BATCH_MAX = 500  # Mails in one statement.
WRITE_GRACE = timedelta(seconds=5)  # To write a result although the attempt was cancelled.
REPLY_LENGTH_MAX = 500


class ResultRow(Struct, frozen=True, kw_only=True, rename={"class_": "class"}):
    """A row of mail_result; `suppresses` is the address that this result shows not to exist."""

    mail_id: int
    token: int
    recipient_no: int
    result: str
    class_: str
    phase: str | None = None
    code: int | None = None
    enhanced: str | None = None
    reply: str | None = None
    relay: str | None = None
    suppresses: str | None = None


class MailEnding(Struct, frozen=True):
    """The results of one attempt of one mail, and the events about them."""

    rows: Sequence[ResultRow]
    events: Sequence[MailEvent]


def clean(text: str) -> str:
    """Return the words of a relay as PostgreSQL can store them."""
    return text[:REPLY_LENGTH_MAX].replace("\x00", "\ufffd")


class ResultWriter:
    """Where results are written."""

    def __init__(self, pool: Pool, *, announce: Announce, log: Logger) -> None:
        self._pool = pool
        self._announce = announce
        self._log = log
        self._queue: Coalescer[MailEnding, bool] = Coalescer(self._write, batch_max=BATCH_MAX)

    async def write(self, ending: MailEnding) -> bool:
        """Return once the rows are committed; False if the lease was gone: only `sent` is then.

        A cancelled attempt may finish this within WRITE_GRACE.
        """
        return await finish(self._queue.submit(ending), within=WRITE_GRACE)

    async def _write(self, endings: Sequence[MailEnding]) -> Sequence[bool | Exception]:
        """Write all in one transaction; if one of them is refused, each in its own."""
        try:
            return await self._write_until_available(endings)
        except asyncpg.PostgresError as refused:
            if len(endings) == 1:
                return [refused]
        return [each for ending in endings for each in await self._write([ending])]

    async def _write_until_available(self, endings: Sequence[MailEnding]) -> Sequence[bool]:
        delays = retry_delays()
        while True:
            try:
                with database_away():
                    return await self._write_once(endings)
            except DatabaseAway as away:
                delay = next(delays)
                self._log.warning(
                    "mail_result.awaited", reason=away.reason, retry_in_seconds=round(delay, 1)
                )
                await asyncio.sleep(delay)

    async def _write_once(self, endings: Sequence[MailEnding]) -> Sequence[bool]:
        rows = [row for ending in endings for row in ending.rows]
        async with self._pool.acquire() as db, db.transaction():
            written = await db.fetch(WRITE_RESULTS, msgspec.json.encode(rows).decode())
            fenced = {row["mail_id"] for row in written if row["is_fenced"]}
            new = {(row["mail_id"], row["recipient_no"]) for row in written if row["is_new"]}
            # Two attempts of one mail may write at once: one event for each recipient.
            events = {
                (event.mail_id, event.recipient_no): event
                for ending in endings
                for event in ending.events
                if (event.mail_id, event.recipient_no) in new
            }
            if events:
                # Without its result a recipient would get a second copy.
                await announce_apart(db, [*events.values()], announce=self._announce, log=self._log)
        return [ending.rows[0].mail_id in fenced for ending in endings]
