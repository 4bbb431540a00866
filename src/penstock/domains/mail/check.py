"""What a mail may contain: limits, and the form of every value that reaches a header. Pure.

`check_mail` runs before a mail is stored and again before its bytes are built, because rows can
also be written with SQL.
"""

import re
from collections import Counter
from collections.abc import Iterator

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import check_name
from penstock.domains.mail.mail import Address, Attachment, Mail
from penstock.domains.mail.one_line import check_one_line

RECIPIENTS_MAX = 100  # RFC 5321 obliges servers to take so many in one transaction, and no more.
REPLY_TO_MAX = 10  # People answer to one address, rarely to a few.
SUBJECT_LENGTH_MAX = 998  # The longest line that RFC 5322 allows; inboxes show about 70.
HEADERS_MAX = 50  # Ten times what mailing systems add.
HEADER_NAME_LENGTH_MAX = 64  # Leaves room for a value on the first line of the header.
HEADERS_BYTES_MAX = 32_768  # With 100 recipients, still below the 102,400 of Postfix for all.
BODY_BYTES_MAX = 1_048_576  # For text and HTML each; Gmail cuts HTML above 102 kB.
ATTACHMENTS_MAX = 50  # Photos of an event; more belongs into an archive.
ATTACHMENT_BYTES_MAX = 10_485_760  # One file, so that one value of a row stays small.
ATTACHMENTS_BYTES_MAX = 14_680_064  # Together: encoded and with both bodies, below the next line.
MESSAGE_BYTES_MAX = 26_214_400  # A common limit of large providers; follows from those above.
FILENAME_BYTES_MAX = 255  # What file systems allow; encoded, still within one line of 998 bytes.
CONTENT_ID_LENGTH_MAX = 200
CONTENT_TYPE_LENGTH_MAX = 200  # Calendar invitations have two parameters, with 70 characters.
URL_LENGTH_MAX = 900  # Within one line of 998 bytes, because a URL cannot be folded.

# Written by Penstock, by the relay or by the recipient's server; a second one would forge or break.
RESERVED_HEADERS = frozenset(
    {
        "authentication-results", "bcc", "cc", "date", "dkim-signature", "domainkey-signature",
        "errors-to", "from", "message-id", "mime-version", "received", "received-spf", "reply-to",
        "return-path", "sender", "subject", "to",
    }
)  # fmt: skip
RESERVED_PREFIXES = ("arc-", "content-", "resent-")
UNSUBSCRIBE_HEADERS = frozenset({"list-unsubscribe", "list-unsubscribe-post"})

# Looser than `address.make_address`, which has checked most addresses before: nothing here can end
# a header or a command of SMTP.
_ADDRESS = re.compile(r"[^\s\x00-\x20\x7f-\x9f\ud800-\udfff<>()\[\]:;@\\,\"]+@[A-Za-z0-9.-]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]+"  # noqa: S105 - a token of RFC 2045
_CONTENT_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}(?:; ?{_TOKEN}=(?:{_TOKEN}|"[ !#-\[\]-~]*"))*')
_CONTENT_ID = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.@-]+")
_MESSAGE_ID = re.compile(r"<[!-;=?-~]+>")
_URL = re.compile(r"https?://[!-;=?-~]+")


def check_mail(mail: Mail) -> None:
    """Raise InvalidInput for the first field that no relay should be given."""
    _check_recipients(mail)
    _check_line("subject", mail.subject, SUBJECT_LENGTH_MAX)
    _check_bodies(mail)
    if mail.headers:
        _check_headers(mail)
    if mail.attachments:
        _check_attachments(mail)
    if mail.unsubscribe_url is not None:
        _check_unsubscribe(mail)
    if not _MESSAGE_ID.fullmatch(mail.message_id):
        raise InvalidInput("message_id", "is not a Message-ID")


# ------------------------------------------------------------------------------------- addresses


def _check_recipients(mail: Mail) -> None:
    _check_address("from", mail.sender)
    if not mail.recipients:
        raise InvalidInput("to", "is empty, and there is no cc or bcc")
    if len(mail.recipients) > RECIPIENTS_MAX:
        raise InvalidInput("to", f"has more than {RECIPIENTS_MAX} recipients, cc and bcc included")
    if len(mail.reply_to) > REPLY_TO_MAX:
        raise InvalidInput("reply_to", f"has over {REPLY_TO_MAX} addresses")
    for field, address in _addresses(mail):
        _check_address(field, address)


def _addresses(mail: Mail) -> Iterator[tuple[str, Address]]:
    """Yield each address with the field in which the caller wrote it."""
    positions: Counter[str] = Counter()
    for recipient in mail.recipients:
        yield f"{recipient.kind}[{positions[recipient.kind]}]", recipient.address
        positions[recipient.kind] += 1
    for position, address in enumerate(mail.reply_to):
        yield f"reply_to[{position}]", address


def _check_address(field: str, address: Address) -> None:
    if not _ADDRESS.fullmatch(address.address):
        raise InvalidInput(field, "is not a valid address")
    if address.name:
        check_name(address.name, field=field)


# ------------------------------------------------------------------------------ text and headers


def _check_bodies(mail: Mail) -> None:
    if mail.text is None and mail.html is None:
        raise InvalidInput("text", "is missing, and there is no html")
    for field, body in (("text", mail.text), ("html", mail.html)):
        if body is not None and _bytes_of(field, body) > BODY_BYTES_MAX:
            raise InvalidInput(field, f"is over {BODY_BYTES_MAX} bytes")


def _bytes_of(field: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field, "contains an unpaired surrogate") from None


def _check_headers(mail: Mail) -> None:
    if len(mail.headers) > HEADERS_MAX:
        raise InvalidInput("headers", f"has over {HEADERS_MAX} headers")
    seen: set[str] = set()
    for name, value in mail.headers.items():
        _check_header_name(name, seen, is_unsubscribable=mail.unsubscribe_url is not None)
        check_one_line(value, field=f"headers.{name}")
    size = sum(len(name) + len(value.encode()) for name, value in mail.headers.items())
    if size > HEADERS_BYTES_MAX:
        raise InvalidInput("headers", f"is over {HEADERS_BYTES_MAX} bytes")


def _check_header_name(name: str, seen: set[str], *, is_unsubscribable: bool) -> None:
    if len(name) > HEADER_NAME_LENGTH_MAX or not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(
            "headers",
            f"has a name that is not 1 to {HEADER_NAME_LENGTH_MAX} of the characters"
            " A-Z a-z 0-9 . _ -",
        )
    lower = name.lower()
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        raise InvalidInput(f"headers.{name}", "is set by Penstock and cannot be given")
    if is_unsubscribable and lower in UNSUBSCRIBE_HEADERS:
        raise InvalidInput(f"headers.{name}", "is set by unsubscribe")
    if lower in seen:
        raise InvalidInput(f"headers.{name}", "is given twice, in different case")
    seen.add(lower)


def _check_line(field: str, value: str, length_max: int) -> None:
    if len(value) > length_max:
        raise InvalidInput(field, f"is over {length_max} characters")
    check_one_line(value, field=field)


# ----------------------------------------------------------------------------------- attachments


def _check_attachments(mail: Mail) -> None:
    if len(mail.attachments) > ATTACHMENTS_MAX:
        raise InvalidInput("attachments", f"has over {ATTACHMENTS_MAX} files")
    content_ids: set[str] = set()
    for position, attachment in enumerate(mail.attachments):
        field = f"attachments[{position}]"
        _check_attachment(field, attachment)
        if attachment.content_id is not None:
            _check_content_id(f"{field}.content_id", attachment.content_id, content_ids)
            if mail.html is None:
                raise InvalidInput(f"{field}.content_id", "needs html that shows it")
    if sum(len(each.content) for each in mail.attachments) > ATTACHMENTS_BYTES_MAX:
        raise InvalidInput("attachments", f"is over {ATTACHMENTS_BYTES_MAX} bytes together")


def _check_attachment(field: str, attachment: Attachment) -> None:
    if len(attachment.content) > ATTACHMENT_BYTES_MAX:
        raise InvalidInput(field, f"is over {ATTACHMENT_BYTES_MAX} bytes")
    _check_filename(f"{field}.filename", attachment.filename)
    _check_content_type(f"{field}.content_type", attachment.content_type)


def _check_filename(field: str, filename: str) -> None:
    check_one_line(filename, field=field)
    if not 1 <= len(filename.encode()) <= FILENAME_BYTES_MAX:
        raise InvalidInput(field, f"must have 1 to {FILENAME_BYTES_MAX} bytes")
    if "/" in filename or "\\" in filename:
        raise InvalidInput(field, "must be a name and not a path")


def _check_content_type(field: str, content_type: str) -> None:
    if len(content_type) > CONTENT_TYPE_LENGTH_MAX or not _CONTENT_TYPE.fullmatch(content_type):
        raise InvalidInput(field, "is not a content type such as image/png")
    if content_type.lower().startswith(("message/", "multipart/")):
        # RFC 2046 forbids base64 for them, and without it not every relay accepts the bytes.
        raise InvalidInput(field, "cannot be attached; use application/octet-stream")


def _check_content_id(field: str, content_id: str, seen: set[str]) -> None:
    if len(content_id) > CONTENT_ID_LENGTH_MAX or not _CONTENT_ID.fullmatch(content_id):
        raise InvalidInput(field, "may have letters, digits, and . _ - @ only")
    if content_id in seen:
        raise InvalidInput(field, "is that of another attachment")
    seen.add(content_id)


def _check_unsubscribe(mail: Mail) -> None:
    assert mail.unsubscribe_url is not None
    if len(mail.recipients) != 1:
        raise InvalidInput("unsubscribe", "needs exactly one recipient, to whom the link belongs")
    url = mail.unsubscribe_url
    if len(url) > URL_LENGTH_MAX or not _URL.fullmatch(url):
        raise InvalidInput("unsubscribe", "has no valid URL; check PENSTOCK_PUBLIC_URL")
