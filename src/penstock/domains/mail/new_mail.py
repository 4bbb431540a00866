"""A mail on its way in: what a caller asks for, checked, and turned into a document. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import parse_address, parse_addresses
from penstock.domains.mail.check import check_mail
from penstock.domains.mail.lanes import lane_of
from penstock.domains.mail.mail import Attachment, Mail, Recipient, RecipientKind
from penstock.domains.mail.one_line import check_one_line
from penstock.domains.mail.template import Rendered, Template
from penstock.kernel.enqueue import check, check_instant
from penstock.kernel.item import NewItem

TAGS_MAX = 20  # As the table's CHECK.
TAG_LENGTH_MAX = 100
NAME_LENGTH_MAX = 63  # Of a relay or a template, as the table's CHECK.

# For checks only: the id, and with it the Message-ID, is known once the mail is accepted.
_SOME_ID = 1
_SOME_MESSAGE_ID = "<1.00000000@localhost>"
_SOME_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
_SOME_URL = "https://localhost/"


class NewAttachment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file for a mail; with a `content_id` an inline image that the HTML shows as `cid:…`."""

    content: bytes
    filename: str
    content_type: str = "application/octet-stream"
    content_id: str | None = None


class NewMail(Struct, frozen=True, kw_only=True):
    """A mail to send. Addresses are `ada@example.org` or `Ada <ada@example.org>`.

    Either `subject` and bodies are given, or a `template`, which is rendered with `variables`. The
    same `key` again returns the first mail; with another content it raises KeyConflict. A mail that
    has not left at `not_after` fails. `bulk` is for newsletters: they do not delay other mails.
    With `override_suppression` it is sent to suppressed addresses too.
    """

    sender: str
    to: Sequence[str] = ()
    cc: Sequence[str] = ()
    bcc: Sequence[str] = ()
    reply_to: Sequence[str] = ()
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    headers: Mapping[str, str] = {}
    tags: Sequence[str] = ()
    attachments: Sequence[NewAttachment] = ()
    template: str | None = None
    language: str | None = None
    variables: Mapping[str, object] = {}
    key: str | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    relay: str | None = None
    unsubscribe: bool = False
    bulk: bool = False
    override_suppression: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMail:
    """A mail as the database takes it: its lane, its document as JSON, and its blobs."""

    lane: str
    document: str
    blobs: Sequence[bytes]


def check_source(new: NewMail) -> None:
    """Raise InvalidInput if it is not clear where subject and bodies come from."""
    given = [name for name in ("subject", "text", "html") if getattr(new, name) is not None]
    if new.template is not None and given:
        raise InvalidInput(given[0], "comes from the template; leave it out")
    if new.template is None and new.variables:
        raise InvalidInput("variables", "needs a template")
    if new.template is None and new.subject is None:
        raise InvalidInput("subject", "is missing, and there is no template")


def prepare(new: NewMail, rendered: tuple[Template, Rendered] | None = None) -> PreparedMail:
    """Check a mail and return what is stored of it; raises InvalidInput with the field."""
    check_source(new)
    _check_texts(new)
    check_instant("not_before", new.not_before)  # Which an item calls due_at.
    check(
        NewItem(payload=None, key=new.key, due_at=new.not_before, not_after=new.not_after),
    )
    content = None if rendered is None else rendered[1]
    mail = Mail(
        id=_SOME_ID,
        message_id=_SOME_MESSAGE_ID,
        sent_at=_SOME_INSTANT,
        sender=parse_address(new.sender, field="from"),
        recipients=_recipients(new),
        subject=(new.subject or "") if content is None else content.subject,
        text=new.text if content is None else content.text,
        html=new.html if content is None else content.html,
        reply_to=parse_addresses(new.reply_to, field="reply_to"),
        headers=dict(new.headers),
        attachments=tuple(
            Attachment(
                content=each.content,
                filename=each.filename,
                content_type=each.content_type,
                content_id=each.content_id,
            )
            for each in new.attachments
        ),
        unsubscribe_url=_SOME_URL if new.unsubscribe else None,
    )
    check_mail(mail)
    document = _document(new, mail, None if rendered is None else rendered[0])
    return PreparedMail(
        lane=lane_of(bulk=new.bulk),
        document=msgspec.json.encode(document).decode(),
        blobs=list({each.content: None for each in new.attachments}),
    )


def _check_texts(new: NewMail) -> None:
    for field in ("subject", "text", "html"):
        if "\x00" in (getattr(new, field) or ""):
            raise InvalidInput(field, "contains a NUL character")
    if len(new.tags) > TAGS_MAX:
        raise InvalidInput("tags", f"has over {TAGS_MAX} tags")
    for position, tag in enumerate(new.tags):
        field = f"tags[{position}]"
        if not 1 <= len(tag) <= TAG_LENGTH_MAX:
            raise InvalidInput(field, f"must have 1 to {TAG_LENGTH_MAX} characters")
        check_one_line(tag, field=field)
    for field in ("relay", "template"):
        name = getattr(new, field)
        if name is not None and not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise InvalidInput(field, f"must have 1 to {NAME_LENGTH_MAX} characters")


def _recipients(new: NewMail) -> tuple[Recipient, ...]:
    """Return all recipients; an address that is named twice gets one copy."""
    found: dict[str, Recipient] = {}
    given: tuple[tuple[RecipientKind, Sequence[str]], ...] = (
        ("to", new.to),
        ("cc", new.cc),
        ("bcc", new.bcc),
    )
    for kind, texts in given:
        for address in parse_addresses(texts, field=kind):
            found.setdefault(address.address, Recipient(kind=kind, address=address))
    return tuple(found.values())


def _document(new: NewMail, mail: Mail, template: Template | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "from": mail.sender,
        "recipients": mail.recipients,
        "subject": mail.subject,
        "text": mail.text,
        "html": mail.html,
        "reply_to": mail.reply_to or None,
        "headers": mail.headers or None,
        "tags": list(dict.fromkeys(new.tags)) or None,
        "attachments": [_listed(each) for each in mail.attachments] or None,
        "relay": new.relay,
        "unsubscribe": new.unsubscribe or None,
        "override_suppression": new.override_suppression or None,
        "key": new.key,
        "not_before": new.not_before,
        "not_after": new.not_after,
    }
    if template is not None:
        document |= {
            "template": template.name,
            "template_version": template.version,
            "language": template.language,
            "variables": new.variables,
        }
    return {name: value for name, value in document.items() if value is not None}


def _listed(attachment: Attachment) -> dict[str, str | None]:
    return {
        "hash": hashlib.sha256(attachment.content).hexdigest(),
        "filename": attachment.filename,
        "content_type": attachment.content_type,
        "content_id": attachment.content_id,
    }
