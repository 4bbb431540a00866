"""Operators' verbs for mails: cancel, and replay what has failed."""

from penstock.domains.mail.errors import UnknownMail
from penstock.domains.mail.lanes import OWNER
from penstock.kernel import operate
from penstock.kernel.errors import UnknownItem
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

REPLAY_FAILURES = statement(__package__, "replay_failures.sql")


async def cancel_mail(db: Connection, mail_id: int, *, who: str) -> None:
    """Cancel a mail that no worker holds; a repeat is harmless. Raises StateConflict."""
    try:
        await operate.cancel(db, ItemId(mail_id), who=who, owner=OWNER)
    except UnknownItem:
        raise UnknownMail(mail_id) from None


async def replay_mail(db: Connection, mail_id: int, *, who: str) -> None:
    """Try a failed or held mail again, for the recipients that did not get it.

    Raises StateConflict for any other mail.
    """
    item = await read_item(db, ItemId(mail_id))
    if item is None:
        raise UnknownMail(mail_id)
    async with db.transaction():
        if item.state == "held":
            await operate.release(db, item.id, who=who, reason="the mail is replayed", owner=OWNER)
        else:
            await operate.retry(db, item.id, who=who, owner=OWNER)
        # After the item has left `dead`: until then, failed results may still be written.
        await db.execute(REPLAY_FAILURES, mail_id)
