"""What a mail may not contain is refused, and the field is named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.mail.check import (
    ATTACHMENT_BYTES_MAX,
    ATTACHMENTS_BYTES_MAX,
    ATTACHMENTS_MAX,
    BODY_BYTES_MAX,
    FILENAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    MESSAGE_BYTES_MAX,
    RECIPIENTS_MAX,
    REPLY_TO_MAX,
    SUBJECT_LENGTH_MAX,
    check_mail,
)
from penstock.domains.mail.mail import Address, Attachment, Recipient
from tests.domains.mail.scene import ADA, INVOICE, LOGO, a_mail, content_of, read

SENDER = Address(address="shop@example.org")
BREAKS = ["\r\nBcc: eve@example.org", "\n", "\r", "\x00", "\x85", "\u2028", "\x1b", "\ud800"]
each_break = pytest.mark.parametrize("broken", BREAKS, ids=ascii)


def refused_field(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        check_mail(a_mail(**changes))
    return refused.value.field


def a_file(**changes: Any) -> Attachment:
    given_: dict[str, Any] = {
        "content": b"",
        "filename": "a.txt",
        "content_type": "text/plain",
    } | changes
    return Attachment(**given_)


def cc(address: str, name: str = "") -> Recipient:
    return Recipient(kind="cc", address=Address(address=address, name=name))


# ------------------------------------------------------------------------------ header injection


@each_break
def test_a_line_break_is_refused_in_every_header(broken: str) -> None:
    """It would end the header, and what follows would be a header of the attacker's choice."""
    text = f"a{broken}b"
    named = Address(address="a@example.org", name=text)
    addressed = Address(address=f"a{broken}b@example.org")

    assert refused_field(subject=text) == "subject"
    assert refused_field(sender=named) == "from"
    assert refused_field(sender=addressed) == "from"
    assert (
        refused_field(recipients=(ADA, cc("b@example.org"), cc("c@example.org", text))) == "cc[1]"
    )
    assert refused_field(recipients=(ADA, cc(addressed.address))) == "cc[0]"
    assert refused_field(reply_to=(SENDER, named)) == "reply_to[1]"
    assert refused_field(headers={"X-Note": text}) == "headers.X-Note"
    assert refused_field(headers={text: "value"}) == "headers"
    assert refused_field(message_id=f"<a{broken}b@example.org>") == "message_id"
    assert refused_field(unsubscribe_url=f"https://example.org/{broken}") == "unsubscribe"


@each_break
def test_a_line_break_is_refused_in_every_part(broken: str) -> None:
    text = f"a{broken}b"

    def field_of(**changes: Any) -> str:
        return refused_field(html="h", attachments=(INVOICE, a_file(**changes)))

    assert field_of(filename=text) == "attachments[1].filename"
    assert field_of(content_type=f"text/plain; name={text}") == "attachments[1].content_type"
    assert field_of(content_type=f'text/plain; name="{text}"') == "attachments[1].content_type"
    assert field_of(content_id=text) == "attachments[1].content_id"


@given(st.tuples(*[st.text(max_size=40)] * 4))
def test_whatever_is_accepted_adds_no_header(texts: tuple[str, str, str, str]) -> None:
    """The guard and the writer together: no value can become a header or a part."""
    subject, name, value, filename = texts
    try:
        content = content_of(
            subject=subject,
            sender=Address(address="shop@example.org", name=name),
            headers={"X-Note": value},
            attachments=(a_file(filename=filename),),
        )
    except InvalidInput:
        return

    message = read(content)
    assert message.keys() == [
        "Date", "From", "To", "Subject", "Message-ID", "Auto-Submitted", "X-Note", "MIME-Version",
        "Content-Type",
    ]  # fmt: skip
    assert len(list(message.walk())) == 3


# --------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    "name",
    [
        "From", "FROM", "to", "Cc", "Bcc", "Sender", "Reply-To", "Subject", "Date", "Message-ID",
        "DKIM-Signature", "Received", "Return-Path", "MIME-Version", "Content-Type",
        "Content-Transfer-Encoding", "Resent-To", "ARC-Seal", "Authentication-Results",
    ],
)  # fmt: skip
def test_a_header_that_is_written_elsewhere_cannot_be_set(name: str) -> None:
    assert refused_field(headers={name: "x"}) == f"headers.{name}"


@pytest.mark.parametrize("name", ["", "X Note", "X:Note", "Ünote", "-X", "X" * 65, "X\t"])
def test_a_name_that_is_no_header_is_refused(name: str) -> None:
    assert refused_field(headers={name: "x"}) == "headers"


def test_a_header_given_in_two_cases_is_refused() -> None:
    assert refused_field(headers={"X-Note": "a", "x-note": "b"}) == "headers.x-note"


def test_own_unsubscribe_headers_are_allowed_without_ours() -> None:
    own = {"List-Unsubscribe": "<mailto:stop@example.org>"}
    check_mail(a_mail(headers=own))

    assert (
        refused_field(headers=own, unsubscribe_url="https://example.org/u")
        == "headers.List-Unsubscribe"
    )


def test_an_unsubscribe_link_needs_exactly_one_recipient() -> None:
    """With two, each could unsubscribe the other."""
    url = "https://example.org/u"
    check_mail(a_mail(unsubscribe_url=url))

    assert refused_field(unsubscribe_url=url, recipients=(ADA, ADA)) == "unsubscribe"


# ---------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"recipients": ()}, "to"),
        ({"recipients": (ADA,) * (RECIPIENTS_MAX + 1)}, "to"),
        ({"reply_to": (SENDER,) * (REPLY_TO_MAX + 1)}, "reply_to"),
        ({"subject": "x" * (SUBJECT_LENGTH_MAX + 1)}, "subject"),
        ({"text": None}, "text"),
        ({"text": "x" * (BODY_BYTES_MAX + 1)}, "text"),
        ({"text": "ä" * (BODY_BYTES_MAX // 2 + 1)}, "text"),
        ({"html": "x" * (BODY_BYTES_MAX + 1)}, "html"),
        ({"html": "\ud800"}, "html"),
        ({"headers": {f"X-{number}": "" for number in range(HEADERS_MAX + 1)}}, "headers"),
        ({"headers": {"X-Note": "x" * HEADERS_BYTES_MAX}}, "headers"),
        ({"attachments": (a_file(),) * (ATTACHMENTS_MAX + 1)}, "attachments"),
        (
            {"attachments": (INVOICE, a_file(content=bytes(ATTACHMENT_BYTES_MAX + 1)))},
            "attachments[1]",
        ),
        (
            {"attachments": (a_file(content=bytes(ATTACHMENTS_BYTES_MAX // 2 + 1)),) * 2},
            "attachments",
        ),
        ({"attachments": (a_file(filename=""),)}, "attachments[0].filename"),
        ({"attachments": (a_file(filename="../a"),)}, "attachments[0].filename"),
        ({"attachments": (a_file(filename="a\\b"),)}, "attachments[0].filename"),
        (
            {"attachments": (a_file(filename="ä" * (FILENAME_BYTES_MAX // 2 + 1)),)},
            "attachments[0].filename",
        ),
        ({"attachments": (a_file(content_type="pdf"),)}, "attachments[0].content_type"),
        ({"attachments": (a_file(content_type="message/rfc822"),)}, "attachments[0].content_type"),
        ({"attachments": (a_file(content_type="Multipart/Mixed"),)}, "attachments[0].content_type"),
        ({"attachments": (LOGO,)}, "attachments[0].content_id"),
        ({"html": "h", "attachments": (LOGO, LOGO)}, "attachments[1].content_id"),
        ({"html": "h", "attachments": (a_file(content_id=""),)}, "attachments[0].content_id"),
        ({"unsubscribe_url": "mailto:stop@example.org"}, "unsubscribe"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mail_beyond_a_limit_is_refused(changes: dict[str, Any], field: str) -> None:
    assert refused_field(**changes) == field


@pytest.mark.parametrize(
    "address",
    ["", "ada", "ada@", "@example.org", "a da@example.org", "a<b>@example.org", "a@b@example.org"],
)
def test_an_address_that_only_sql_has_seen_is_refused(address: str) -> None:
    assert refused_field(recipients=(ADA, cc(address))) == "cc[0]"


def test_a_calendar_invitation_is_accepted() -> None:
    check_mail(
        a_mail(attachments=(a_file(content_type='text/calendar; charset="utf-8"; method=REQUEST'),))
    )


@pytest.mark.parametrize("body", ["\n", "ä", "=", " \n", "\x00 \n \n"], ids=ascii)
def test_the_largest_mail_stays_below_the_limit_of_providers(body: str) -> None:
    """The limits are on what the caller writes; what is sent is longer, and must be accepted."""
    half = bytes(ATTACHMENTS_BYTES_MAX // 2)
    largest = "ä" + body * (BODY_BYTES_MAX // len(body.encode()) - 2)
    content = content_of(
        text=largest,
        html=largest,
        recipients=tuple(cc("a" * 64 + f"@{'b' * 63}.org", "ä" * 200) for _ in range(100)),
        headers={"X-Note": "ä" * 16_000},
        attachments=(a_file(content=half), a_file(content=half)),
    )

    assert len(content) <= MESSAGE_BYTES_MAX
