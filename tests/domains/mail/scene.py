"""A mail to change, and a reader that is not ours."""

from datetime import UTC, datetime
from email import message_from_bytes, message_from_string
from email.message import EmailMessage, MIMEPart
from email.policy import SMTP, SMTPUTF8
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.domains.mail.mail import Address, Attachment, Mail, Recipient
from penstock.domains.mail.message import build_message

SALT = "0a1b2c3d"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ADA = Recipient(kind="to", address=Address(address="ada@example.org", name="Ada"))
LOGO = Attachment(
    content=b"\x89PNG", filename="logo.png", content_type="image/png", content_id="logo"
)
INVOICE = Attachment(content=b"%PDF-1.7", filename="invoice.pdf", content_type="application/pdf")
MAIL = Mail(
    id=4711,
    message_id=f"<4711.{SALT}@example.org>",
    sent_at=NOON,
    sender=Address(address="shop@example.org", name="Shop"),
    recipients=(ADA,),
    subject="Your order",
    text="Thank you.\n",
)

a_text = st.text(st.characters(exclude_categories=["Cs"]))
a_line = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=200)
a_filename = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="/\\"),
    min_size=1,
    max_size=60,
)


def a_mail(**changes: Any) -> Mail:
    return msgspec.structs.replace(MAIL, **changes)


def content_of(**changes: Any) -> bytes:
    return build_message(a_mail(**changes)).content


def read(content: bytes) -> EmailMessage:
    """Parse a message with the standard library; it must find no defect anywhere."""
    if content.isascii():
        message = message_from_bytes(content, policy=SMTP)
    else:
        message = message_from_string(content.decode(), policy=SMTPUTF8)
    assert [part.defects for part in message.walk() if part.defects] == []
    return message


def read_mail(**changes: Any) -> EmailMessage:
    return read(content_of(**changes))


def text_of(part: MIMEPart | None) -> str:
    """Return a text part as the mail had it, with line feeds."""
    assert part is not None
    text = part.get_content()
    assert isinstance(text, str)
    return text.replace("\r\n", "\n")
