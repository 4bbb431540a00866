"""One mail as a value: what `check` validates and `message` turns into bytes.

Structs, because a worker makes one of each for every mail (ADR 0009), and because recipients and
headers are stored as JSON.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

RecipientKind = Literal["to", "cc", "bcc"]


class Address(Struct, frozen=True, kw_only=True):
    """An address for the SMTP envelope and the headers, as `address.parse_address` returns it.

    The domain is in ASCII and lower case. A local part that is not ASCII needs SMTPUTF8.
    """

    address: str
    name: str = ""


class Recipient(Struct, frozen=True, kw_only=True):
    """Someone who gets the mail. A bcc recipient is in the SMTP envelope and never in the message.

    The position in `Mail.recipients` is the recipient's number, in results and in tokens.
    """

    kind: RecipientKind
    address: Address


class Attachment(Struct, frozen=True, kw_only=True):
    """A file of the mail; with a `content_id` an inline image that the HTML shows as `cid:…`."""

    content: bytes
    filename: str
    content_type: str
    content_id: str | None = None


class Mail(Struct, frozen=True, kw_only=True):
    """Everything that the bytes of a message depend on, so that each attempt sends the same bytes.

    `message_id` comes from `message_id.make_message_id`, `sent_at` becomes the header Date, and
    `unsubscribe_url` comes from `unsubscribe.make_url`.
    """

    id: int
    message_id: str
    sent_at: datetime
    sender: Address
    recipients: tuple[Recipient, ...]
    subject: str
    text: str | None = None
    html: str | None = None
    reply_to: tuple[Address, ...] = ()
    headers: dict[str, str] = {}
    attachments: tuple[Attachment, ...] = ()
    unsubscribe_url: str | None = None
