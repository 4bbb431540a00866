"""The message of a mail as a relay gets it, for people. Reads only."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import InvalidInput
from penstock.domains.mail.errors import UnknownMail
from penstock.domains.mail.lanes import LANE
from penstock.domains.mail.loader import BlobReader, BrokenMail, MailLoader
from penstock.domains.mail.message import Message, build_message
from penstock.postgres.pool import Pool, Queries
from penstock.postgres.statement import statement

READ_SALT = statement(__package__, "read_salt.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewer:
    """Builds the message again from what is stored."""

    pool: Pool
    loader: MailLoader
    blobs: BlobReader
    unsubscribe_url: Callable[[int], str] | None = None

    async def preview(self, mail_id: int) -> Message:
        """Return the message; raises UnknownMail, or InvalidInput for one that cannot be sent."""
        mail = (await self.loader.load(self.pool, [mail_id], lane=LANE)).get(mail_id)
        if mail is None:
            raise UnknownMail(mail_id)
        if isinstance(mail, BrokenMail):
            raise InvalidInput("mail", mail.reason)
        contents = await self.blobs.read([each.hash for each in mail.attachments])
        if contents is None:
            raise InvalidInput("attachments", "are no longer kept")
        url = None
        if mail.is_unsubscribable and self.unsubscribe_url is not None:
            url = self.unsubscribe_url(mail.id)
        return build_message(mail.to_mail(contents, unsubscribe_url=url))


async def read_salt(db: Queries) -> str:
    """Return the part of every Message-ID that names this database."""
    return await db.fetchval(READ_SALT)
