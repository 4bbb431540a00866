"""What goes into a mail comes out of it, read with the standard library's parser."""

from datetime import UTC, datetime, timedelta, timezone
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domains.mail.check import FILENAME_BYTES_MAX
from penstock.domains.mail.mail import Address, Attachment, Recipient, RecipientKind
from penstock.domains.mail.message import build_message
from penstock.domains.mail.message_id import find_mail_id, make_message_id
from tests.domains.mail.scene import (
    ADA,
    INVOICE,
    LOGO,
    NOON,
    SALT,
    a_filename,
    a_line,
    a_mail,
    a_text,
    content_of,
    read,
    read_mail,
    text_of,
)


def body_of(text: str) -> str:
    """Return a text as readers get it: one kind of line end, and one at the end of the message."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if lines.endswith("\n") else lines + "\n"


# ----------------------------------------------------------------------------------- the shapes


def test_a_plain_mail_is_known_to_the_byte() -> None:
    """A change of form is a change for every receiver, filter and archive."""
    assert content_of() == (
        b"Date: Tue, 01 Jan 2030 12:00:00 +0000\r\n"
        b"From: Shop <shop@example.org>\r\n"
        b"To: Ada <ada@example.org>\r\n"
        b"Subject: Your order\r\n"
        b"Message-ID: <4711.0a1b2c3d@example.org>\r\n"
        b"Auto-Submitted: auto-generated\r\n"
        b"MIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: 7bit\r\n"
        b"\r\n"
        b"Thank you.\r\n"
    )


def types_in(message: EmailMessage) -> list[object]:
    """Return the tree of content types as nested lists."""
    own = message.get_content_type()
    if not message.is_multipart():
        return [own]
    parts = [part for part in message.iter_parts() if isinstance(part, EmailMessage)]
    return [own, [types_in(part) for part in parts]]


TEXT, HTML = ["text/plain"], ["text/html"]
PNG, PDF = ["image/png"], ["application/pdf"]
RELATED = ["multipart/related", [HTML, PNG]]


@pytest.mark.parametrize(
    ("text", "html", "attachments", "shape"),
    [
        ("t", None, (), TEXT),
        (None, "h", (), HTML),
        ("t", "h", (), ["multipart/alternative", [TEXT, HTML]]),
        ("t", None, (INVOICE,), ["multipart/mixed", [TEXT, PDF]]),
        (None, "h", (LOGO,), RELATED),
        ("t", "h", (LOGO,), ["multipart/alternative", [TEXT, RELATED]]),
        (
            "t",
            "h",
            (INVOICE, LOGO),
            ["multipart/mixed", [["multipart/alternative", [TEXT, RELATED]], PDF]],
        ),
    ],
)
def test_parts_are_where_mail_programs_look_for_them(
    *, text: str | None, html: str | None, attachments: tuple[Attachment, ...], shape: list[object]
) -> None:
    message = read_mail(text=text, html=html, attachments=attachments)

    assert types_in(message) == shape


def test_a_full_mail_has_its_bodies_files_and_images() -> None:
    message = read_mail(html="<img src='cid:logo'>", attachments=(INVOICE, LOGO))

    (invoice,) = message.iter_attachments()
    images = [part for part in message.walk() if part["Content-ID"]]
    assert text_of(message.get_body(["plain"])) == "Thank you.\n"
    assert text_of(message.get_body(["html"])) == "<img src='cid:logo'>"
    assert invoice.get_filename() == "invoice.pdf"
    assert invoice.get_content_disposition() == "attachment"
    assert invoice.get_payload(decode=True) == INVOICE.content
    assert [image["Content-ID"] for image in images] == ["<logo>"]
    assert [image.get_content_disposition() for image in images] == ["inline"]
    assert images[0].get_payload(decode=True) == LOGO.content


@pytest.mark.parametrize("attachments", [(), (INVOICE,)], ids=["one part", "two parts"])
def test_the_same_mail_has_the_same_bytes(attachments: tuple[Attachment, ...]) -> None:
    """A second attempt after a lost reply must be the same message for the recipient."""
    assert content_of(attachments=attachments) == content_of(attachments=attachments)


# ------------------------------------------------------------------------- what goes in comes out


@given(text=a_text, html=st.none() | a_text, attachment=st.none() | st.binary())
def test_any_text_and_any_file_is_read_back(
    text: str, html: str | None, attachment: bytes | None
) -> None:
    files = () if attachment is None else (Attachment(
        content=attachment, filename="a.bin", content_type="application/octet-stream"
    ),)  # fmt: skip
    message = read_mail(text=text, html=html, attachments=files)

    body = text_of(message.get_body(["plain"]))
    assert body_of(body) == body_of(text)
    if html is not None:
        assert body_of(text_of(message.get_body(["html"]))) == body_of(html)
    if attachment is not None:
        (found,) = message.iter_attachments()
        assert found.get_payload(decode=True) == attachment


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5_000,
        "wide " * 1_000,
        "ä" * 5_000,
        "日本語" * 1_000,
        "trailing space \nand tab\t\n",
        "tail without a line end ä ",
        ".\n..\n.hidden\n",
        "ä\n.\n",
        "From the start\nFrom the middle\n",
        "--=_alternative_4711\nContent-Type: text/html\n\n<b>forged</b>\n--=_alternative_4711--\n",
        "--=_mixed_4711--",
        "NUL \x00 and \x1b escape",
        "\x85\u2028\u2029 odd line ends",
        "=3D =\n",
        "",
        "\n\n\n",
        "\r \r\n \n\r",
    ],
)
def test_a_text_that_is_hard_to_send_is_read_back(text: str) -> None:
    message = read_mail(text=text, html="<p>ä</p>", attachments=(INVOICE,))

    assert [part.get_content_type() for part in message.walk()] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "text/html",
        "application/pdf",
    ]
    assert body_of(text_of(message.get_body(["plain"]))) == body_of(text)


@given(subject=a_line, name=a_line, value=a_line)
def test_any_subject_name_and_header_is_read_back(subject: str, name: str, value: str) -> None:
    sender = Address(address="shop@example.org", name=name)

    content = content_of(sender=sender, subject=subject, headers={"X-Note": value})

    # The newer policies put spaces between the encoded words of a long name.
    message = message_from_bytes(content)
    found, address = parseaddr(unfolded(message["From"]))
    assert decoded(message["Subject"]) == subject
    assert decoded(message["X-Note"]) == value
    assert (decoded(found), address) == (name, "shop@example.org")


def decoded(value: str) -> str:
    return str(make_header(decode_header(unfolded(value))))


def unfolded(value: str) -> str:
    return value.replace("\r\n", "").replace("\n", "")


@given(a_filename)
def test_any_filename_is_read_back(filename: str) -> None:
    file = Attachment(content=b"x", filename=filename, content_type="text/csv; charset=utf-8")
    (found,) = read_mail(attachments=(file,)).iter_attachments()

    assert found.get_filename() == filename.strip()  # The parser strips it.
    assert found.get_content_type() == "text/csv"


@given(
    st.lists(st.tuples(st.sampled_from(get_args(RecipientKind)), a_line), min_size=1, max_size=20)
)
def test_to_and_cc_are_read_back_and_bcc_is_nowhere(
    given_: list[tuple[RecipientKind, str]],
) -> None:
    """A bcc recipient in a header would be shown to all others."""
    recipients = tuple(
        Recipient(kind=kind, address=Address(address=f"{kind}-{no}@example.org", name=name))
        for no, (kind, name) in enumerate(given_)
    )
    content = content_of(recipients=recipients)
    message = read(content)

    assert message["Bcc"] is None
    assert not [each for each in recipients if is_hidden(each) and shows(content, each)]
    for kind in ("to", "cc"):
        header = message[kind]
        found = [] if header is None else [each.addr_spec for each in header.addresses]
        assert found == [each.address.address for each in recipients if each.kind == kind]


def is_hidden(recipient: Recipient) -> bool:
    return recipient.kind == "bcc"


def shows(content: bytes, recipient: Recipient) -> bool:
    return recipient.address.address.encode() in content


# -------------------------------------------------------------------------------- for every relay


@given(
    text=a_text,
    html=a_text,
    subject=a_line,
    name=a_line,
    filename=a_filename,
    value=a_line,
)
def test_any_relay_accepts_the_bytes(
    *, text: str, html: str, subject: str, name: str, filename: str, value: str
) -> None:
    """Relays without 8BITMIME or SMTPUTF8 refuse other bytes, and many cut or refuse long lines."""
    content = content_of(
        text=text,
        html=html,
        subject=subject,
        sender=Address(address="shop@example.org", name=name),
        headers={"X-Note": value},
        attachments=(Attachment(content=b"x" * 999, filename=filename, content_type="a/b"),),
    )

    lines = content.split(b"\r\n")
    assert content.endswith(b"\r\n")
    assert content.isascii()
    assert b"\x00" not in content
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= 998


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain\n", "7bit"),
        ("x" * 998, "7bit"),
        ("x" * 999, "quoted-printable"),
        ("Grüße aus Köln, heute einmal mit etwas mehr Text", "quoted-printable"),
        ("日本語のメール", "base64"),
        ("--=_x" + "y" * 40, "quoted-printable"),
    ],
)
def test_the_encoding_is_the_shortest_that_is_safe(text: str, encoding: str) -> None:
    assert read_mail(text=text)["Content-Transfer-Encoding"] == encoding


@pytest.mark.parametrize("filename", ["ä" * 127, "x" * FILENAME_BYTES_MAX, '"quoted" 100%.txt'])
def test_a_long_or_odd_filename_fits_a_line(filename: str) -> None:
    file = Attachment(content=b"x", filename=filename, content_type="text/plain")
    content = content_of(attachments=(file,))

    assert max(map(len, content.split(b"\r\n"))) <= 998
    assert [part.get_filename() for part in read(content).iter_attachments()] == [filename]


def test_long_headers_are_folded_between_words() -> None:
    subject = "A subject of many words, " * 20
    references = " ".join(f"<{number}.{'r' * 40}@example.org>" for number in range(30))
    content = content_of(subject=subject.strip(), headers={"References": references})

    head = content.partition(b"\r\n\r\n")[0]
    assert max(map(len, head.split(b"\r\n"))) <= 78
    assert read(content)["Subject"] == subject.strip()
    assert read(content)["References"] == references


def test_a_word_longer_than_a_line_is_encoded() -> None:
    value = "w" * 3_000
    content = content_of(headers={"X-Note": value})

    assert max(map(len, content.split(b"\r\n"))) <= 998
    assert decoded(message_from_bytes(content)["X-Note"]) == value


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": Address(address="jürgen@example.org")},
        {"recipients": (ADA, Recipient(kind="bcc", address=Address(address="ü@example.org")))},
        {"reply_to": (Address(address="ü@example.org"),)},
    ],
    ids=["from", "bcc", "reply_to"],
)
def test_an_address_beyond_ascii_is_reported_as_needing_smtputf8(
    changes: dict[str, object],
) -> None:
    message = build_message(a_mail(**changes))

    assert message.needs_smtputf8
    assert message.content.decode()
    assert not build_message(a_mail()).needs_smtputf8


def test_an_address_beyond_ascii_is_read_back() -> None:
    sender = Address(address="jürgen@example.org", name="Jürgen")
    (found,) = read_mail(sender=sender)["From"].addresses

    assert (found.addr_spec, found.display_name) == ("jürgen@example.org", "Jürgen")


def test_a_mail_needs_no_smtputf8_for_its_names_and_texts() -> None:
    message = build_message(
        a_mail(subject="Grüße", text="ä", sender=Address(address="a@example.org", name="Ä"))
    )

    assert not message.needs_smtputf8


# ----------------------------------------------------------------------------------- the headers


def test_a_mail_to_bcc_only_says_so() -> None:
    """RFC 5322 asks for one destination header, and filters distrust mails without To."""
    hidden = Recipient(kind="bcc", address=Address(address="eve@example.org"))
    content = content_of(recipients=(hidden,))

    assert b"eve@example.org" not in content
    assert read(content)["To"] == "undisclosed-recipients:;"


def test_the_date_is_in_utc_whatever_the_zone() -> None:
    in_india = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert content_of(sent_at=in_india) == content_of()


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_the_date_is_read_back(at: datetime) -> None:
    assert read_mail(sent_at=at)["Date"].datetime == at.replace(microsecond=0)


def test_one_click_unsubscribe_has_both_headers() -> None:
    url = "https://mail.example.org/mails/unsubscribe/" + "t" * 36
    message = message_from_bytes(content_of(unsubscribe_url=url), policy=SMTP)

    assert message["List-Unsubscribe"] == f"<{url}>"
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert read_mail()["List-Unsubscribe"] is None


def test_a_mail_is_marked_as_automatic_unless_the_caller_says_otherwise() -> None:
    assert read_mail()["Auto-Submitted"] == "auto-generated"
    replied = read_mail(headers={"auto-submitted": "auto-replied"})
    assert replied.get_all("Auto-Submitted") == ["auto-replied"]


def test_reply_to_may_be_several_addresses() -> None:
    message = read_mail(
        reply_to=(
            Address(address="help@example.org", name="Help, please"),
            Address(address="a@example.org"),
        )
    )

    assert [(each.display_name, each.addr_spec) for each in message["Reply-To"].addresses] == [
        ("Help, please", "help@example.org"),
        ("", "a@example.org"),
    ]


# ------------------------------------------------------------------------------------ Message-ID


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_message_id_leads_back_to_its_mail(mail_id: int) -> None:
    message_id = make_message_id(mail_id, salt=SALT, domain="example.org")

    assert find_mail_id(message_id, salt=SALT) == mail_id
    assert find_mail_id(message_id.strip("<>"), salt=SALT) == mail_id


@pytest.mark.parametrize(
    "message_id",
    [
        "",
        "<4711@example.org>",
        "<4711.ffffffff@example.org>",
        f"<-1.{SALT}@example.org>",
        f"<{2**63}.{SALT}@example.org>",
        f"<{'9' * 5000}.{SALT}@example.org>",
        f"<4711.{SALT}@>",
        f"<4711.{SALT}@example.org> <1.{SALT}@example.org>",
    ],
)
def test_a_message_id_of_elsewhere_leads_to_no_mail(message_id: str) -> None:
    assert find_mail_id(message_id, salt=SALT) is None
