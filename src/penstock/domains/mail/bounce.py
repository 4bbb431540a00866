"""Bounces and complaints that others report: RFC 3464, ARF (RFC 5965) and JSON. Pure.

Reports come from anywhere, so this reads the few fields that it needs, within limits, and raises
nothing but InvalidInput. The standard library's parser recurses, and fails in many ways.
"""

import binascii
import re
from binascii import a2b_base64, a2b_qp
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import make_address
from penstock.domains.mail.message_id import find_mail_id
from penstock.domains.mail.one_line import replace_forbidden

REPORT_BYTES_MAX = 1_048_576  # Reports precede the returned mail; the rest is not read.
JSON_BYTES_MAX = 65_536
DEPTH_MAX = 4  # Mailing lists and scanners wrap a report once or twice.
PARTS_MAX = 50  # A report has three.
HEADER_LINES_MAX = 1_000  # Of one block; usual mails have below 100.
RECIPIENTS_MAX = 200  # Twice what one mail can have.
DIAGNOSTIC_LENGTH_MAX = 500  # As the replies of relays.

BounceKind = Literal["hard", "soft", "complaint"]
Fields = dict[str, str]

_ENHANCED = re.compile(r"\b([245]\.[0-9]{1,3}\.[0-9]{1,3})\b")
_BOUNDARY = re.compile(r'boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,998}>")
_BLANK_LINE = re.compile(rb"\n[ \t]*\n")
_FOLD = re.compile(rb"\n[ \t]+")


class Bounce(Struct, frozen=True, kw_only=True):
    """One recipient did not get a mail, or complained about it.

    `hard` is permanent for this mail; whether the address is suppressed depends on `enhanced`.
    `mail_id` is set if the mail is one of this database. At least one of `recipient` and `mail_id`
    is set: complaints often come without the address.
    """

    kind: BounceKind
    recipient: str | None
    enhanced: str | None
    diagnostic: str
    message_id: str | None
    mail_id: int | None


class BounceInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bounce as JSON, for providers that report in a form of their own."""

    kind: BounceKind
    recipient: Annotated[str, Meta(max_length=1_000)] | None = None
    enhanced: Annotated[str, Meta(pattern=r"^[245]\.[0-9]{1,3}\.[0-9]{1,3}$")] | None = None
    diagnostic: str = ""
    message_id: Annotated[str, Meta(max_length=998)] | None = None


def read_report(content: bytes, *, salt: str) -> list[Bounce]:
    """Return the bounces of a report, none if it reports success; raises InvalidInput.

    `content` is the whole message with its headers, of RFC 3464 or RFC 5965.
    """
    parts = list(_parts(_with_line_feeds(content[:REPORT_BYTES_MAX]), DEPTH_MAX))
    message_id = _original_message_id(parts)
    for content_type, body in parts:
        if content_type in ("message/delivery-status", "message/global-delivery-status"):
            return _read_delivery_status(body, message_id, salt)
        if content_type == "message/feedback-report":
            return _read_feedback(body, message_id, salt)
    raise InvalidInput("report", "is neither a delivery report nor a feedback report")


def read_bounce(content: bytes, *, salt: str) -> Bounce:
    """Return the bounce that a JSON object describes; raises InvalidInput with the field."""
    if len(content) > JSON_BYTES_MAX:
        raise InvalidInput("report", f"is over {JSON_BYTES_MAX} bytes")
    try:
        given = msgspec.json.decode(content, type=BounceInput)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as refused:
        raise InvalidInput("report", replace_forbidden(str(refused))) from refused
    recipient = None
    if given.recipient is not None:
        recipient = make_address(given.recipient, field="recipient").address
    bounce = _bounce(
        given.kind,
        recipient=recipient,
        enhanced=given.enhanced,
        diagnostic=given.diagnostic,
        message_id=given.message_id,
        salt=salt,
    )
    if bounce is None:
        raise InvalidInput("recipient", "is missing, and message_id is not of a mail of Penstock")
    return bounce


def _bounce(
    kind: BounceKind,
    *,
    recipient: str | None,
    enhanced: str | None,
    diagnostic: str,
    message_id: str | None,
    salt: str,
) -> Bounce | None:
    """Return the bounce, or None if nothing says whom it is about."""
    mail_id = None if message_id is None else find_mail_id(message_id, salt=salt)
    if recipient is None and mail_id is None:
        return None
    return Bounce(
        kind=kind,
        recipient=recipient,
        enhanced=enhanced,
        diagnostic=replace_forbidden(diagnostic)[:DIAGNOSTIC_LENGTH_MAX],
        message_id=None if message_id is None else replace_forbidden(message_id),
        mail_id=mail_id,
    )


# --------------------------------------------------------------------------- the kinds of reports


def _read_delivery_status(body: bytes, message_id: str | None, salt: str) -> list[Bounce]:
    """Read one block of fields about the message, then one for each recipient (RFC 3464)."""
    blocks = [_read_fields(block) for block in _BLANK_LINE.split(body, RECIPIENTS_MAX + 1)]
    recipients = [block for block in blocks if "action" in block or "status" in block]
    if not recipients:
        raise InvalidInput("report", "is about no recipient")
    failed = [block for block in recipients[:RECIPIENTS_MAX] if _is_failure(block)]
    bounces = [_read_recipient(block, message_id, salt) for block in failed]
    found = [bounce for bounce in bounces if bounce is not None]
    if failed and not found:
        raise InvalidInput("report", "has no recipient with a valid address, and no known mail")
    return found


def _is_failure(block: Fields) -> bool:
    return block.get("action", "failed").lower() in ("failed", "delayed")


def _read_recipient(block: Fields, message_id: str | None, salt: str) -> Bounce | None:
    status = _find_enhanced(block.get("status", ""))
    diagnostic = _after_type(block.get("diagnostic-code", ""))
    is_delayed = block.get("action", "failed").lower() == "delayed"
    is_hard = not is_delayed and (status or "5").startswith("5")
    return _bounce(
        "hard" if is_hard else "soft",
        # The address that we sent to comes first: behind it there may be a forward.
        recipient=_read_address(block.get("original-recipient"), block.get("final-recipient")),
        enhanced=_more_exact(status, _find_enhanced(diagnostic)),
        diagnostic=diagnostic,
        message_id=message_id,
        salt=salt,
    )


def _more_exact(status: str | None, from_diagnostic: str | None) -> str | None:
    """Return the remote server's code if the reporter's own says only 5.0.0 or 4.0.0."""
    if status is None or (status.endswith(".0.0") and from_diagnostic is not None):
        is_same_class = status is None or (from_diagnostic or "")[:1] == status[:1]
        return from_diagnostic if is_same_class else status
    return status


def _read_feedback(body: bytes, message_id: str | None, salt: str) -> list[Bounce]:
    """Read a complaint; a report of `not-spam` is none (RFC 5965)."""
    fields = _read_fields(body)
    feedback_type = fields.get("feedback-type", "").lower()
    if not feedback_type:
        raise InvalidInput("report", "has no Feedback-Type")
    if feedback_type == "not-spam":
        return []
    bounce = _bounce(
        "complaint",
        recipient=_read_address(fields.get("original-rcpt-to")),
        enhanced=None,
        diagnostic=f"{feedback_type} reported by {fields.get('user-agent', 'unknown')}",
        message_id=message_id,
        salt=salt,
    )
    if bounce is None:
        raise InvalidInput("report", "has no Original-Rcpt-To, and no known mail")
    return [bounce]


# ------------------------------------------------------------------------------------------ fields


def _read_address(*values: str | None) -> str | None:
    """Return the first valid address of values such as `rfc822; ada@example.org`."""
    for value in values:
        text = _after_type(value or "").strip("<> \t")
        try:
            return make_address(text, field="recipient").address
        except InvalidInput:
            continue
    return None


def _after_type(value: str) -> str:
    """Return a value without the type in front of it: `smtp; 550 5.1.1 …`."""
    kind, semicolon, rest = value.partition(";")
    return rest.strip() if semicolon and kind.strip().replace("-", "").isalnum() else value.strip()


def _find_enhanced(text: str) -> str | None:
    found = _ENHANCED.search(text)
    return None if found is None else found[1]


def _original_message_id(parts: Sequence[tuple[str, bytes]]) -> str | None:
    """Return the Message-ID of the mail that a report returns, whole or only its headers."""
    for content_type, body in reversed(parts):
        if content_type in ("message/rfc822", "message/global", "text/rfc822-headers"):
            head, _ = _split_head(body)
            found = _MESSAGE_ID.search(head.get("message-id", ""))
            if found is not None:
                return found[0]
    return None


# ---------------------------------------------------------------------------------------- MIME


def _parts(entity: bytes, depth: int) -> Iterator[tuple[str, bytes]]:
    """Yield content type and decoded body of each part, multiparts opened up to `depth`."""
    head, body = _split_head(entity)
    value = head.get("content-type", "text/plain")
    content_type = value.partition(";")[0].strip().lower()
    if not content_type.startswith("multipart/"):
        yield content_type, _decode(head.get("content-transfer-encoding", ""), body)
        return
    boundary = _BOUNDARY.search(value)
    if boundary is None:
        raise InvalidInput("report", "has a multipart without a boundary")
    if not depth:
        raise InvalidInput("report", f"has parts nested more than {DEPTH_MAX} deep")
    for part in _split_parts(body, boundary[1] or boundary[2]):
        yield from _parts(part, depth - 1)


def _split_parts(body: bytes, boundary: str) -> list[bytes]:
    # The end of the line stays, so that it can begin the next delimiter of an empty part.
    delimiter = re.compile(rb"\n--" + re.escape(boundary.encode()) + rb"(--)?[ \t]*(?=\n|$)")
    pieces = delimiter.split(b"\n" + body, PARTS_MAX)
    # After the preamble come pairs: the `--` of the last delimiter or None, and what follows.
    parts: list[bytes] = []
    for is_last, part in zip(pieces[1::2], pieces[2::2], strict=True):
        if is_last:
            break
        parts.append(part[1:])
    return parts


def _split_head(entity: bytes) -> tuple[Fields, bytes]:
    if entity.startswith(b"\n"):
        return {}, entity[1:]
    blank = _BLANK_LINE.search(entity)
    if blank is None:
        return _read_fields(entity), b""
    return _read_fields(entity[: blank.start()]), entity[blank.end() :]


def _read_fields(block: bytes) -> Fields:
    """Return header fields by lower-case name, unfolded; of a repeated one the first."""
    fields: Fields = {}
    for line in _FOLD.sub(b" ", block).split(b"\n", HEADER_LINES_MAX)[:HEADER_LINES_MAX]:
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _decode(encoding: str, body: bytes) -> bytes:
    match encoding.strip().lower():
        case "base64":
            try:
                return _with_line_feeds(a2b_base64(body))
            except binascii.Error:
                return b""  # Such as a returned mail that is cut off; the report is before it.
        case "quoted-printable":
            return _with_line_feeds(a2b_qp(body))
        case _:
            return body


def _with_line_feeds(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
