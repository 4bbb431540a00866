"""Reports of others: what they say, and that no input does anything but be refused."""

import json
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.mail.bounce import (
    DEPTH_MAX,
    DIAGNOSTIC_LENGTH_MAX,
    JSON_BYTES_MAX,
    REPORT_BYTES_MAX,
    Bounce,
    read_bounce,
    read_report,
)
from tests.domains.mail.scene import SALT, content_of

MESSAGE_ID = f"<4711.{SALT}@example.org>"
BOUNCED = """\
Reporting-MTA: dns; mx.example.net
Arrival-Date: Tue, 01 Jan 2030 12:00:00 +0000

Final-Recipient: rfc822; ada@example.org
Original-Recipient: rfc822;ada@example.org
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 <ada@example.org>: Recipient address
    rejected: User unknown
"""
ABUSE = """\
Feedback-Type: abuse
User-Agent: SomeGenerator/1.0
Version: 1
Original-Rcpt-To: <ada@example.org>
"""


def report(
    fields: str,
    *,
    kind: str = "delivery-status",
    original: bytes | None = None,
    original_type: str = "message/rfc822",
    ending: str = "\r\n",
) -> bytes:
    """Return a multipart/report as a server sends it."""
    mail = content_of() if original is None else original
    text = "\n".join(
        [
            "From: MAILER-DAEMON@example.net",
            "Subject: Undelivered",
            "MIME-Version: 1.0",
            f"Content-Type: multipart/report; report-type={kind};",
            '\tboundary="=_b (1)"',
            "",
            "This is a MIME message.",
            "--=_b (1)",
            "Content-Type: text/plain",
            "",
            "Your mail could not be delivered.",
            "--=_b (1)",
            f"Content-Type: message/{kind}",
            "",
            fields,
            "--=_b (1)",
            f"Content-Type: {original_type}",
            "",
            mail.decode().replace("\r\n", "\n"),
            "--=_b (1)--",
            "",
        ]
    )
    return text.replace("\n", ending).encode()


def read_one(content: bytes) -> Bounce:
    (bounce,) = read_report(content, salt=SALT)
    return bounce


# -------------------------------------------------------------------------------------- RFC 3464


@pytest.mark.parametrize("ending", ["\r\n", "\n", "\r"], ids=ascii)
@pytest.mark.parametrize("original_type", ["message/rfc822", "text/rfc822-headers"])
def test_a_delivery_report_names_recipient_reason_and_mail(ending: str, original_type: str) -> None:
    assert read_one(report(BOUNCED, ending=ending, original_type=original_type)) == Bounce(
        kind="hard",
        recipient="ada@example.org",
        enhanced="5.1.1",
        diagnostic="550 5.1.1 <ada@example.org>: Recipient address rejected: User unknown",
        message_id=MESSAGE_ID,
        mail_id=4711,
    )


@pytest.mark.parametrize(
    ("action", "status", "kind"),
    [
        ("failed", "5.1.1", "hard"),
        ("Failed", "5.0.0", "hard"),
        ("failed", "4.4.7", "soft"),
        ("delayed", "4.4.1", "soft"),
        ("delayed", "5.1.1", "soft"),
        ("failed", "", "hard"),
    ],
)
def test_the_kind_follows_from_action_and_status(action: str, status: str, kind: str) -> None:
    fields = BOUNCED.replace("failed", action).replace("Status: 5.1.1", f"Status: {status}")

    assert read_one(report(fields)).kind == kind


@pytest.mark.parametrize("action", ["delivered", "relayed", "expanded"])
def test_a_report_of_success_is_no_bounce(action: str) -> None:
    fields = BOUNCED.replace("failed", action).replace("5.1.1", "2.1.5")

    assert read_report(report(fields), salt=SALT) == []


@pytest.mark.parametrize(
    ("status", "diagnostic", "enhanced"),
    [
        ("5.0.0", "smtp; 550 5.7.26 blocked", "5.7.26"),
        ("5.0.0", "smtp; 450 4.2.1 later", "5.0.0"),
        ("5.2.2", "smtp; 550 5.7.26 blocked", "5.2.2"),
        ("5.0.0 (undefined)", "smtp; 550 no", "5.0.0"),
        ("unknown", "smtp; 550 5.1.1 no", "5.1.1"),
        ("unknown", "smtp; 550 no", None),
    ],
)
def test_the_more_exact_code_counts(status: str, diagnostic: str, enhanced: str | None) -> None:
    fields = (
        "Reporting-MTA: dns; a\n\nFinal-Recipient: rfc822; ada@example.org\nAction: failed\n"
        f"Status: {status}\nDiagnostic-Code: {diagnostic}\n"
    )

    assert read_one(report(fields)).enhanced == enhanced


def test_the_address_that_was_sent_to_counts_and_not_the_forward() -> None:
    fields = BOUNCED.replace("Final-Recipient: rfc822; ada", "Final-Recipient: rfc822; forward")

    assert read_one(report(fields)).recipient == "ada@example.org"


def test_every_recipient_of_a_report_is_read() -> None:
    fields = BOUNCED + "".join(
        f"\nFinal-Recipient: rfc822; r{number}@example.org\nAction: failed\nStatus: 5.1.1\n"
        for number in range(3)
    )

    recipients = [bounce.recipient for bounce in read_report(report(fields), salt=SALT)]

    assert recipients == [
        "ada@example.org", "r0@example.org", "r1@example.org", "r2@example.org",
    ]  # fmt: skip


def test_a_report_without_a_valid_address_is_about_its_mail() -> None:
    fields = BOUNCED.replace("rfc822; ada@example.org", "x400; /C=DE/").replace(
        "rfc822;ada@example.org", "unknown"
    )
    bounce = read_one(report(fields))

    assert (bounce.recipient, bounce.mail_id) == (None, 4711)
    with pytest.raises(InvalidInput, match="no known mail"):
        read_report(report(fields, original=b"Subject: x\n\n"), salt=SALT)


def test_a_mail_of_elsewhere_is_not_ours() -> None:
    foreign = content_of(message_id="<4711.ffffffff@example.org>")
    bounce = read_one(report(BOUNCED, original=foreign))

    assert bounce.mail_id is None
    assert bounce.message_id == "<4711.ffffffff@example.org>"


def test_a_message_id_in_the_text_of_the_mail_is_ignored() -> None:
    """The author of a mail could otherwise let another mail bounce."""
    original = content_of(text=f"\nMessage-ID: <1.{SALT}@example.org>\n")

    assert read_one(report(BOUNCED, original=original)).mail_id == 4711


@pytest.mark.parametrize("encoding", ["base64", "quoted-printable", "8bit"])
def test_an_encoded_report_in_another_mail_is_read(encoding: str) -> None:
    """Scanners add a footer, and with it a multipart around the report."""
    wrapped = EmailMessage()
    wrapped.add_attachment(BOUNCED, cte=encoding)
    wrapped.add_attachment("This mail was scanned.")
    content = wrapped.as_bytes().replace(b"text/plain", b"message/delivery-status", 1)

    assert read_one(content).recipient == "ada@example.org"


# ------------------------------------------------------------------------------------------- ARF


def test_a_feedback_report_names_recipient_and_mail() -> None:
    assert read_one(report(ABUSE, kind="feedback-report")) == Bounce(
        kind="complaint",
        recipient="ada@example.org",
        enhanced=None,
        diagnostic="abuse reported by SomeGenerator/1.0",
        message_id=MESSAGE_ID,
        mail_id=4711,
    )


def test_a_redacted_feedback_report_is_about_its_mail() -> None:
    """Most providers remove the address of the person who complains."""
    fields = ABUSE.replace("<ada@example.org>", "redacted")
    bounce = read_one(report(fields, kind="feedback-report"))

    assert (bounce.kind, bounce.recipient, bounce.mail_id) == ("complaint", None, 4711)


def test_a_report_of_not_spam_is_none() -> None:
    fields = ABUSE.replace("abuse", "not-spam")

    assert read_report(report(fields, kind="feedback-report"), salt=SALT) == []


# ------------------------------------------------------------------------------------------ JSON


def as_json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_bounce_may_be_given_as_json() -> None:
    content = as_json(
        kind="soft",
        recipient="Ada@Example.org",
        enhanced="4.2.2",
        diagnostic="full\r\n",
        message_id=MESSAGE_ID,
    )

    assert read_bounce(content, salt=SALT) == Bounce(
        kind="soft",
        recipient="Ada@example.org",
        enhanced="4.2.2",
        diagnostic="full??",
        message_id=MESSAGE_ID,
        mail_id=4711,
    )


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", "report"),
        (b"[]", "report"),
        (b"\xff", "report"),
        (b"[" * 60_000, "report"),
        (as_json(kind="hard", recipient="a@example.org", unknown=1), "report"),
        (as_json(kind="gone", recipient="a@example.org"), "report"),
        (as_json(kind="hard", recipient="a@example.org", enhanced="9.9"), "report"),
        (as_json(kind="hard", recipient="nobody"), "recipient"),
        (as_json(kind="hard"), "recipient"),
        (as_json(kind="hard", message_id="<1@example.org>"), "recipient"),
        (as_json(kind="hard", diagnostic="x" * JSON_BYTES_MAX), "report"),
    ],
    ids=lambda value: value if isinstance(value, str) else ascii(value[:40]),
)
def test_json_that_is_no_bounce_is_refused(content: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_bounce(content, salt=SALT)

    assert refused.value.field == field


# -------------------------------------------------------------------------------- hostile reports


def nested(depth: int) -> bytes:
    head = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level)
        for level in range(depth)
    )
    return head + b"Content-Type: message/delivery-status\n\n" + BOUNCED.encode()


def test_a_report_within_a_few_multiparts_is_read() -> None:
    assert read_one(nested(DEPTH_MAX)).recipient == "ada@example.org"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"Subject: hello\n\nI am on vacation.\n",
        b"Content-Type: multipart/report\n\nno boundary",
        nested(DEPTH_MAX + 1),
        nested(10_000),
        b"Content-Type: multipart/report; boundary=b\n\n" + b"--b\n" * 200_000,
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"\n--b" * 200_000,
        b"Content-Type: message/delivery-status\n\n",
        b"Content-Type: message/delivery-status\n\nReporting-MTA: dns; a\n",
        b"Content-Type: message/delivery-status\nContent-Transfer-Encoding: base64\n\n%%%A",
        b"Content-Type: message/feedback-report\n\nVersion: 1\n",
        b"Content-Type: message/feedback-report\n\nFeedback-Type: abuse\n",
        b"Content-Type: " + b";" * 500_000,
        b"Content-Type: multipart/mixed; " + b"boundary =" * 90_000,
        b" \n" * 300_000,
        b"a:\n" * 300_000,
        b"\x00\xff" * 1_000,
    ],
    ids=lambda content: ascii(content[:50]),
)
def test_what_is_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="report"):
        read_report(content, salt=SALT)


def test_a_large_returned_mail_does_not_hide_the_report() -> None:
    original = content_of(text="x\n" * 500_000)
    content = report(BOUNCED, original=original) + b"x" * REPORT_BYTES_MAX

    assert read_one(content).mail_id == 4711


def test_a_long_diagnostic_is_truncated() -> None:
    fields = BOUNCED.replace("User unknown", "x" * 5_000)

    assert len(read_one(report(fields)).diagnostic) == DIAGNOSTIC_LENGTH_MAX


PIECES = st.sampled_from(
    [
        b"Content-Type: ", b"multipart/report; boundary=b", b"message/delivery-status",
        b"message/feedback-report", b"message/rfc822", b"Content-Transfer-Encoding: base64",
        b"Content-Transfer-Encoding: quoted-printable", b"--b", b"--b--", b"\r\n", b"\n", b"\r",
        b"\r\n\r\n", b" ", b"\t", b":", b";", b"=", b'"', b"Action: failed", b"Status: 5.1.1",
        b"Final-Recipient: rfc822; ada@example.org", b"Feedback-Type: abuse", b"Message-ID: ",
        MESSAGE_ID.encode(), b"Diagnostic-Code: smtp; ", b"\xff\xfe", b"\x00",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.binary(max_size=20), max_size=60).map(b"".join) | st.binary())
def test_any_bytes_are_a_report_or_refused(content: bytes) -> None:
    """The endpoint is open to providers; what they send must not end in a 500."""
    for read_any in (read_report, read_bounce):
        try:
            read_any(content, salt=SALT)
        except InvalidInput:
            continue


@given(st.integers(0, 2_000), st.binary(max_size=20))
def test_a_damaged_report_is_read_or_refused(position: int, damage: bytes) -> None:
    whole = report(BOUNCED)
    content = whole[:position] + damage + whole[position + len(damage) :]
    try:
        bounces = read_report(content, salt=SALT)
    except InvalidInput:
        return

    assert all(bounce.recipient or bounce.mail_id for bounce in bounces)
    assert all(bounce.diagnostic.isprintable() or "\t" in bounce.diagnostic for bounce in bounces)
