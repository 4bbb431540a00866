"""A message of Django as a new mail: its attributes, not its MIME form. Pure; imports no Django.

What a mail cannot carry is refused here; everything else is checked where all mails are.
"""

import mimetypes
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import getaddresses
from typing import Any, Protocol, cast

from penstock.base.errors import InvalidInput
from penstock.domains.mail.new_mail import NewAttachment, NewMail
from penstock.domains.mail.one_line import check_one_line

CONTROL_PREFIX = "x-penstock-"  # Headers for Penstock; they are never sent.
REPLY_TO = "reply-to"
OCTETS = "application/octet-stream"


class DjangoMessage(Protocol):
    """What is read of `django.core.mail.EmailMessage`. Its texts may be lazy, and not yet `str`."""

    subject: Any
    body: Any
    content_subtype: str
    from_email: Any
    to: list[Any]
    cc: list[Any]
    bcc: list[Any]
    reply_to: list[Any]
    extra_headers: dict[Any, Any]
    attachments: list[Any]


def to_new_mail(message: DjangoMessage) -> NewMail:
    """Return the mail that a worker sends; raises InvalidInput with the field."""
    text, html = _bodies(message)
    return NewMail(
        sender=_address(message.from_email),
        to=_addresses(message.to),
        cc=_addresses(message.cc),
        bcc=_addresses(message.bcc),
        reply_to=_reply_to(message),
        subject=str(message.subject),
        text=text,
        html=html,
        headers=_headers(message),
        attachments=[_attachment(each, no) for no, each in enumerate(message.attachments)],
        **_controls(message),
    )


# ------------------------------------------------------------------------------------- addresses


def _addresses(given: Iterable[Any]) -> list[str]:
    """Return the addresses without empty ones, which Django leaves out too."""
    return [_address(each) for each in given if each]


def _address(given: object) -> str:
    """Return an address with its name decoded, because `email.utils.formataddr` encodes names."""
    text = str(given)
    name, _, rest = text.partition("<")
    if "=?" not in name or name.lstrip().startswith('"'):
        return text
    return _with_name(name.strip(), f"<{rest}")


def _reply_to(message: DjangoMessage) -> list[str]:
    """Return the addresses of the header, if there is one, as Django does."""
    for name, value in message.extra_headers.items():
        if name.lower() == REPLY_TO:
            check_one_line(str(value), field=f"headers.{name}")
            found = getaddresses([str(value)])
            return [_with_name(who, f"<{address}>") if who else address for who, address in found]
    return _addresses(message.reply_to)


def _with_name(name: str, address: str) -> str:
    escaped = _decode(name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}" {address}'


def _decode(name: str) -> str:
    try:
        return str(make_header(decode_header(name)))
    except (HeaderParseError, LookupError, UnicodeError):
        return name  # It only looks encoded.


# ---------------------------------------------------------------------------- text and headers


def _bodies(message: DjangoMessage) -> tuple[str | None, str | None]:
    """Return text and HTML; an empty body beside an alternative is left out, as Django does."""
    alternatives: Sequence[Any] = getattr(message, "alternatives", ())
    given: dict[str, tuple[Any, str]] = {}
    if message.body or not alternatives:
        given["content_subtype"] = (message.body, f"text/{message.content_subtype}")
    for position, (content, content_type) in enumerate(alternatives):
        given[f"alternatives[{position}]"] = (content, content_type)
    found: dict[str, str] = {}
    for field, (content, content_type) in given.items():
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in {"text/plain", "text/html"}:
            raise InvalidInput(field, f"is {kind}; only text/plain and text/html can be sent")
        if kind in found:
            raise InvalidInput(field, f"is a second {kind}")
        found[kind] = content.decode() if isinstance(content, bytes) else str(content)
    return found.get("text/plain"), found.get("text/html")


def _headers(message: DjangoMessage) -> dict[str, str]:
    return {
        name: str(value)
        for name, value in message.extra_headers.items()
        if name.lower() != REPLY_TO and not name.lower().startswith(CONTROL_PREFIX)
    }


def _controls(message: DjangoMessage) -> dict[str, Any]:
    """Return the fields that headers such as X-Penstock-Key set; one with None sets nothing."""
    found: dict[str, Any] = {}
    for name, value in message.extra_headers.items():
        if not name.lower().startswith(CONTROL_PREFIX) or value is None:
            continue
        field = name.lower().removeprefix(CONTROL_PREFIX).replace("-", "_")
        if field not in _READERS:
            known = ", ".join(map(_name_of, _READERS))
            raise InvalidInput(f"headers.{name}", f"is none of {known}")
        read, rule = _READERS[field]
        try:
            found[field] = read(str(value))
        except (KeyError, ValueError) as malformed:
            raise InvalidInput(f"headers.{name}", f"must be {rule}") from malformed
    return found


def _name_of(field: str) -> str:
    return f"X-Penstock-{field.replace('_', '-').title()}"


def _read_tags(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _read_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_INSTANT_RULE = "an instant such as 2030-01-01T08:00:00+00:00"
_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "key": (str, "text"),
    "tags": (_read_tags, "tags with commas between them"),
    "bulk": (_read_boolean, "true or false"),
    "not_before": (datetime.fromisoformat, _INSTANT_RULE),
    "not_after": (datetime.fromisoformat, _INSTANT_RULE),
    "relay": (str, "the name of a relay"),
}


# ----------------------------------------------------------------------------------- attachments


def _attachment(given: Any, position: int) -> NewAttachment:
    if isinstance(given, Message):  # MIMEBase, and in Django 6 MIMEPart.
        return _from_part(cast("Message[str, str]", given), position)
    filename, content, content_type = given
    content_type = content_type or mimetypes.guess_type(filename or "")[0] or OCTETS
    content = _bytes_of(content, field=f"attachments[{position}]")
    return NewAttachment(
        content=content,
        filename=filename or _make_filename(content_type, position),
        content_type=_with_charset(content_type, content),
    )


def _bytes_of(content: Any, *, field: str) -> bytes:
    if isinstance(content, str):
        return content.encode()
    try:
        return bytes(memoryview(content))  # A BinaryField of PostgreSQL is a memoryview.
    except TypeError as neither:
        raise InvalidInput(field, "is neither bytes nor text") from neither


def _from_part(part: Message, position: int) -> NewAttachment:
    content = part.get_payload(decode=True)
    content_id = part["Content-ID"]
    return NewAttachment(
        # Without bytes it is a message or a multipart, and refused because of its type.
        content=content if isinstance(content, bytes) else b"",
        filename=part.get_filename() or _make_filename(part.get_content_type(), position),
        content_type=_content_type_of(part),
        content_id=None if content_id is None else str(content_id).strip().strip("<>"),
    )


def _content_type_of(part: Message) -> str:
    """Return the type with its parameters, such as `method` of a calendar; not the file name."""
    parameters = [
        f'; {name}="{value}"' for name, value in part.get_params([])[1:] if name.lower() != "name"
    ]
    return part.get_content_type() + "".join(parameters)


def _with_charset(content_type: str, content: bytes) -> str:
    """Add the charset to a text in UTF-8: readers take a text without one for ASCII."""
    if not content_type.lower().startswith("text/") or "charset=" in content_type.lower():
        return content_type
    try:
        content.decode()
    except UnicodeDecodeError:
        return content_type
    return f"{content_type}; charset=utf-8"


def _make_filename(content_type: str, position: int) -> str:
    """Return a name for a file without one, which is usual for an inline image."""
    kind = content_type.partition(";")[0].strip()
    return f"attachment-{position + 1}{mimetypes.guess_extension(kind) or ''}"
