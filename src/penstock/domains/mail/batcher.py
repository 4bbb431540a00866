"""Batch concurrent `POST /mails` requests into one statement."""

from collections.abc import Sequence

from penstock.base.coalesce import Coalescer
from penstock.base.errors import PenstockError
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.mail.enqueue import Mailer, send_prepared
from penstock.domains.mail.new_mail import NewMail, PreparedMail
from penstock.kernel.item import Accepted
from penstock.postgres.pool import Pool

BATCH_MAX = 200  # Mails in one statement: with attachments they are large.


class MailBatcher:
    """Where single mails come in."""

    def __init__(self, pool: Pool, mailer: Mailer) -> None:
        self._pool = pool
        self._mailer = mailer
        self._queue: Coalescer[PreparedMail, Accepted] = Coalescer(
            self.accept_many, batch_max=BATCH_MAX
        )

    async def accept(self, mail: NewMail) -> Accepted:
        """Return once the mail is committed; raises InvalidInput with the field, or KeyConflict."""
        return await self._queue.ask(await self._mailer.prepare(mail))

    async def accept_many(self, mails: Sequence[PreparedMail]) -> Sequence[Accepted | Exception]:
        """Accept mails in one transaction for each lane; with a conflict, each in its own."""
        answers: dict[int, Accepted | Exception] = {}
        for lane in dict.fromkeys(each.lane for each in mails):
            places = [place for place, each in enumerate(mails) if each.lane == lane]
            found = await self._accept_lane([mails[place] for place in places])
            answers |= dict(zip(places, found, strict=True))
        return [answers[place] for place in range(len(mails))]

    async def _accept_lane(self, mails: Sequence[PreparedMail]) -> Sequence[Accepted | Exception]:
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            try:
                async with db.transaction():
                    return await send_prepared(db, mails)
            except PenstockError as refused:
                if len(mails) == 1:
                    return [refused]
        return [each for mail in mails for each in await self._accept_lane([mail])]
