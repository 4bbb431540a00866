"""The bytes of a mail, in a form that any relay accepts: 7 bit, CRLF, lines of at most 998. Pure.

A direct writer, because the standard library's email package takes 30 times as long (ADR 0038).
"""

from binascii import b2a_base64, b2a_qp
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

import msgspec
from msgspec import Struct

from penstock.domains.mail.address import needs_smtputf8
from penstock.domains.mail.check import check_mail
from penstock.domains.mail.header import (
    LINE_LENGTH_MAX,
    address_header,
    filename_parameter,
    header,
)
from penstock.domains.mail.mail import Address, Attachment, Mail, RecipientKind

BASE64_LINE = 76  # RFC 2045.
BOUNDARY = "=_"  # Begins every boundary; neither base64 nor quoted-printable contains it.

_PLAIN = bytes([ord("\t"), ord("\r"), ord("\n"), *range(0x20, 0x7F)])


class Message(Struct, frozen=True, kw_only=True):
    """What a relay gets, and whether it must offer SMTPUTF8 for it."""

    content: bytes
    needs_smtputf8: bool


class _Part(Struct, frozen=True):
    """A MIME entity: its own header lines, and its encoded body."""

    head: str
    body: bytes


def build_message(mail: Mail) -> Message:
    """Return the message, the same bytes for the same mail; raises InvalidInput as `check_mail`."""
    check_mail(mail)
    content = _content(mail)
    head = _head(mail) + content.head + "\r\n"
    return Message(
        content=head.encode() + _ended(content.body), needs_smtputf8=_needs_smtputf8(mail)
    )


def without_smtputf8(mail: Mail) -> Mail:
    """Return the mail without the recipients that need SMTPUTF8, as other recipients may see it."""
    plain = tuple(each for each in mail.recipients if not needs_smtputf8(each.address.address))
    return msgspec.structs.replace(mail, recipients=plain)


# --------------------------------------------------------------------------------------- headers


def _head(mail: Mail) -> str:
    given = {name.lower() for name in mail.headers}
    lines = [
        f"Date: {_date(mail.sent_at)}\r\n",
        address_header("From", [mail.sender]),
        _to(mail),
        header("Subject", mail.subject),
        f"Message-ID: {mail.message_id}\r\n",
    ]
    if mail.reply_to:
        lines.append(address_header("Reply-To", mail.reply_to))
    if "auto-submitted" not in given:
        # RFC 3834: vacation notices and other robots do not answer to it.
        lines.append("Auto-Submitted: auto-generated\r\n")
    if mail.unsubscribe_url is not None:
        lines.append(f"List-Unsubscribe: <{mail.unsubscribe_url}>\r\n")
        lines.append("List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n")
    lines.extend([header(name, value) for name, value in mail.headers.items()])
    lines.append("MIME-Version: 1.0\r\n")
    return "".join(lines)


@lru_cache(maxsize=1_000)  # Mails that were accepted together have one instant.
def _date(at: datetime) -> str:
    return format_datetime(at.astimezone(UTC))


def _to(mail: Mail) -> str:
    to, cc = _of_kind(mail, "to"), _of_kind(mail, "cc")
    if not to and not cc:
        return "To: undisclosed-recipients:;\r\n"
    return (address_header("To", to) if to else "") + (address_header("Cc", cc) if cc else "")


def _of_kind(mail: Mail, kind: RecipientKind) -> list[Address]:
    return [each.address for each in mail.recipients if each.kind == kind]


def _needs_smtputf8(mail: Mail) -> bool:
    recipients = [each.address for each in mail.recipients]
    return any(needs_smtputf8(each.address) for each in (mail.sender, *recipients, *mail.reply_to))


# --------------------------------------------------------------------------------------- content


def _content(mail: Mail) -> _Part:
    """Return mixed(alternative(text, related(html, images)), files), without what is not needed."""
    readable = _readable(mail)
    files = [each for each in mail.attachments if each.content_id is None]
    if not files:
        return readable
    return _multipart("mixed", [readable, *map(_file, files)], mail)


def _readable(mail: Mail) -> _Part:
    if mail.html is None:
        return _text("plain", mail.text or "")
    html = _with_images(_text("html", mail.html), mail)
    if mail.text is None:
        return html
    return _multipart("alternative", [_text("plain", mail.text), html], mail)


def _with_images(html: _Part, mail: Mail) -> _Part:
    images = [each for each in mail.attachments if each.content_id is not None]
    if not images:
        return html
    return _multipart('related; type="text/html"', [html, *map(_file, images)], mail)


def _multipart(kind: str, parts: Sequence[_Part], mail: Mail) -> _Part:
    boundary = f"{BOUNDARY}{kind.partition(';')[0]}_{mail.id}"
    opening = f"--{boundary}\r\n"
    chunks: list[bytes] = []
    for part in parts:
        chunks += (f"{opening}{part.head}\r\n".encode(), part.body, b"\r\n")
    chunks.append(f"--{boundary}--\r\n".encode())
    return _Part(f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n', b"".join(chunks))


def _text(kind: str, text: str) -> _Part:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text.encode().replace(b"\n", b"\r\n")
    encoding, body = _encode_text(raw)
    return _Part(
        f"Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n",
        body,
    )


def _encode_text(raw: bytes) -> tuple[str, bytes]:
    """Choose the shortest encoding. Never 8bit: not every relay offers 8BITMIME, and one that
    converts the body breaks its DKIM signature.
    """
    others = len(raw.translate(None, _PLAIN))
    if not others and _fits_7bit(raw):
        return "7bit", raw
    # Quoted-printable writes such a byte as three; base64 writes three bytes as four.
    if (others + raw.count(b"=")) * 6 > len(raw):
        return "base64", _encode_base64(raw)
    quoted = b2a_qp(raw, istext=True)
    # Without a line break in the text, b2a_qp ends its own lines with LF alone.
    return "quoted-printable", quoted if b"\r\n" in raw else quoted.replace(b"\n", b"\r\n")


def _fits_7bit(raw: bytes) -> bool:
    # A line of the text could otherwise pass for a boundary, and begin a part of its own. Few texts
    # have an underscore at all, and to look for that takes a tenth of the time.
    if b"_" in raw and b"--" + BOUNDARY.encode() in raw:
        return False
    # Jumps to the last line end that is near enough; splitting all lines takes 20 times as long.
    at = 0
    while len(raw) - at > LINE_LENGTH_MAX:
        at = raw.rfind(b"\n", at, at + LINE_LENGTH_MAX + 2) + 1
        if at == 0:
            return False
    return True


def _file(attachment: Attachment) -> _Part:
    disposition = "attachment" if attachment.content_id is None else "inline"
    head = (
        f"Content-Type: {attachment.content_type}\r\n"
        "Content-Transfer-Encoding: base64\r\n"
        f"Content-Disposition: {disposition}; {filename_parameter(attachment.filename)}\r\n"
    )
    if attachment.content_id is not None:
        head += f"Content-ID: <{attachment.content_id}>\r\n"
    return _Part(head, _encode_base64(attachment.content))


def _encode_base64(raw: bytes) -> bytes:
    encoded = b2a_base64(raw, newline=False)
    return b"\r\n".join(
        [encoded[at : at + BASE64_LINE] for at in range(0, len(encoded), BASE64_LINE)]
    )


def _ended(body: bytes) -> bytes:
    return body if body.endswith(b"\r\n") else body + b"\r\n"
