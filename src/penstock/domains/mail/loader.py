"""What the handlers of a claimed batch need: mails, recipients that are done, relays, limits."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from penstock.base.vault import Vault
from penstock.domains.mail.address import domain_of
from penstock.domains.mail.domain_group import DomainGroup, list_domain_groups
from penstock.domains.mail.mail import Address, Attachment, Mail, Recipient
from penstock.domains.mail.message_id import make_message_id
from penstock.domains.mail.relay import MailLimit, MailLimits, SmtpRelay, list_limits, list_relays
from penstock.kernel.item import Item
from penstock.postgres.pool import Connection, Pool, Queries, Row
from penstock.postgres.statement import statement

LOAD_MAILS = statement(__package__, "load_mails.sql")
READ_SENDING = statement(__package__, "read_sending.sql")
READ_BLOBS = statement(__package__, "read_blobs.sql")

BLOBS_BYTES_MAX = 64 * 1024 * 1024  # In memory: the attachments of a newsletter are read once.

_HASH = re.compile(r"[0-9a-f]{64}")
_recipients = msgspec.json.Decoder(tuple[Recipient, ...])
_addresses = msgspec.json.Decoder(tuple[Address, ...])
_headers = msgspec.json.Decoder(dict[str, str])


class MailRef(Struct, frozen=True):
    """An item's payload. The mail has the item's id; the hash makes a key's conflict visible."""

    hash: str


class AttachmentRef(Struct, frozen=True):
    """An attachment as it is listed in its mail."""

    hash: str
    filename: str
    content_type: str
    content_id: str | None = None


_attachments = msgspec.json.Decoder(tuple[AttachmentRef, ...])


class LoadedMail(Struct, frozen=True, kw_only=True):
    """One mail with what is known of its recipients, and the ways that it may take.

    `done` has the numbers of recipients with a result, `sent` how many of them got the mail.
    """

    id: int
    accepted_at: datetime
    sender: Address
    recipients: tuple[Recipient, ...]
    reply_to: tuple[Address, ...]
    subject: str
    text: str | None
    html: str | None
    headers: dict[str, str]
    tags: Sequence[str]
    attachments: tuple[AttachmentRef, ...]
    relay: str | None
    is_unsubscribable: bool
    done: frozenset[int]
    sent: int
    failure: str | None
    suppressed: frozenset[str]
    message_id: str
    attempts_max: int
    relays: Sequence[SmtpRelay]
    limits: MailLimits

    def to_mail(self, contents: Mapping[str, bytes], *, unsubscribe_url: str | None) -> Mail:
        """Return the mail with the contents of its attachments."""
        return Mail(
            id=self.id,
            message_id=self.message_id,
            sent_at=self.accepted_at,
            sender=self.sender,
            recipients=self.recipients,
            subject=self.subject,
            text=self.text,
            html=self.html,
            reply_to=self.reply_to,
            headers=self.headers,
            attachments=tuple(
                Attachment(
                    content=contents[each.hash],
                    filename=each.filename,
                    content_type=each.content_type,
                    content_id=each.content_id,
                )
                for each in self.attachments
            ),
            unsubscribe_url=unsubscribe_url,
        )


class BrokenMail(Struct, frozen=True):
    """A mail that SQL has written and that cannot be read; it must not stop those beside it."""

    reason: str


class MailLoader:
    """Loads mails; `default` is the relay of the environment."""

    def __init__(self, *, vault: Vault, default: SmtpRelay | None) -> None:
        self._vault = vault
        self._default = default
        self._limits: tuple[list[MailLimit], list[DomainGroup], MailLimits] = ([], [], MailLimits())

    async def preload(
        self, db: Connection, items: Sequence[Item[MailRef]]
    ) -> Sequence[LoadedMail | BrokenMail | MailRef]:
        """Return mails as they are to be sent now; where one is gone, only the reference."""
        found = await self.load(db, [item.id for item in items], lane=items[0].lane)
        return [found.get(item.id) or item.payload for item in items]

    async def load(
        self, db: Queries, mail_ids: Sequence[int], *, lane: str
    ) -> dict[int, LoadedMail | BrokenMail]:
        """Return the mails with these ids that exist."""
        relays = await list_relays(db, vault=self._vault)
        if self._default is not None:
            relays = sorted([*relays, self._default], key=lambda each: each.priority)
        sending = await db.fetchrow(READ_SENDING, lane)
        assert sending is not None, "the migration has inserted its row"
        shared = {
            "attempts_max": sending["attempts_max"] or 1,
            "relays": relays,
            "limits": await self._read_limits(db),
        }
        rows = await db.fetch(LOAD_MAILS, list(mail_ids))
        return {
            row["id"]: _to_loaded(row, sending["salt"], shared)
            for row in rows
            if row["id"] is not None
        }

    async def _read_limits(self, db: Queries) -> MailLimits:
        """Return the same object while no row has changed: it caches rules."""
        listed, groups = await list_limits(db), await list_domain_groups(db)
        if (listed, groups) != self._limits[:2]:
            by_domain = {domain: group.name for group in groups for domain in group.domains}
            self._limits = (listed, groups, MailLimits(listed, groups=by_domain))
        return self._limits[2]


class BlobReader:
    """Reads contents of attachments, and keeps the last used ones in memory."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0

    async def read(self, hashes: Sequence[str]) -> dict[str, bytes] | None:
        """Return the contents by hash, or None if one is gone or is not a hash."""
        if not all(_HASH.fullmatch(each) for each in hashes):
            return None
        found = {each: self._kept[each] for each in hashes if each in self._kept}
        missing = [bytes.fromhex(each) for each in dict.fromkeys(hashes) if each not in found]
        if missing:
            for row in await self._pool.fetch(READ_BLOBS, missing):
                found[row["hash"]] = row["content"]
                self._keep(row["hash"], row["content"])
        return found if all(each in found for each in hashes) else None

    def _keep(self, name: str, content: bytes) -> None:
        if name in self._kept:
            return
        self._kept[name] = content
        self._kept_bytes += len(content)
        while self._kept_bytes > BLOBS_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)


def _to_loaded(row: Row, salt: str, shared: Mapping[str, Any]) -> LoadedMail | BrokenMail:
    try:
        return _decode(row, salt, shared)
    except msgspec.ValidationError as invalid:
        return BrokenMail(f"the row of the mail is not valid: {invalid}")


def _decode(row: Row, salt: str, shared: Mapping[str, Any]) -> LoadedMail:
    sender = Address(address=row["sender"], name=row["sender_name"])
    return LoadedMail(
        id=row["id"],
        accepted_at=row["accepted_at"],
        sender=sender,
        recipients=_recipients.decode(row["recipients"]),
        reply_to=_addresses.decode(row["reply_to"]),
        subject=row["subject"],
        text=row["text"],
        html=row["html"],
        headers=_headers.decode(row["headers"]),
        tags=row["tags"],
        attachments=_attachments.decode(row["attachments"]),
        relay=row["relay"],
        is_unsubscribable=row["is_unsubscribable"],
        done=frozenset(row["recipient_nos"] or ()),
        sent=row["sent"],
        failure=row["reason"],
        suppressed=frozenset(row["addresses"] or ()),
        message_id=make_message_id(row["id"], salt=salt, domain=domain_of(sender.address)),
        **shared,
    )
