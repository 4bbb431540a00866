"""What arrives at the relay is what Django's own SMTP backend would send there."""

from collections.abc import Callable
from email import message_from_bytes
from email.message import EmailMessage as Parsed
from email.message import MIMEPart
from email.mime.base import MIMEBase
from email.mime.image import MIMEImage
from email.policy import SMTP
from email.utils import formataddr
from typing import Any

import pytest
from django.core.mail import (
    EmailMessage,
    EmailMultiAlternatives,
    get_connection,
    mail_admins,
    send_mass_mail,
)
from django.utils.translation import gettext_lazy

from tests.domains.mail.django.project import Project
from tests.domains.mail.django.scene import rows_of, work_until
from tests.domains.mail.outbox import ADA, BEN, Outbox
from tests.domains.mail.scene import read, text_of
from tests.smtp_server import SmtpServer

PNG = b"\x89PNG\r\n\x1a\n"
HTML = '<p>Danke! <img src="cid:logo"></p>\n'


def plain() -> EmailMessage:
    return EmailMessage("Hello", "Hi Ada,\n\n.dot\nFrom here\n", to=[ADA])


def everyone() -> EmailMessage:
    return EmailMessage(
        "To all",
        "Hi.\n",
        '"Shop, Inc." <shop@example.com>',
        to=["Ada Lovelace <ada@example.org>", BEN],
        cc=['"Hopper, Grace" <grace@example.org>'],
        bcc=["archive@example.com"],
        reply_to=["Help <help@example.com>", "second@example.com"],
    )


def reply_to_as_header() -> EmailMessage:
    header = f"{formataddr(('Hilfe für Alle', 'help@example.com'))}, second@example.com"
    return EmailMessage("Hello", "Hi.\n", to=[ADA], headers={"Reply-To": header})


def own_headers() -> EmailMessage:
    headers: dict[str, Any] = {
        "X-Campaign": "Frühling",
        "List-Id": "<news.example.com>",
        "X-Number": 7,
    }
    return EmailMessage("Hello", "Hi.\n", to=[ADA], headers=headers)


def not_ascii() -> EmailMessage:
    return EmailMessage(
        "Grüße aus Köln, und noch viel mehr, damit der Betreff nicht in eine Zeile passt: ☂☂☂",
        "Schöne Grüße ☂\n",
        formataddr(('Käufer, "Laden"', "shop@example.com")),
        to=[
            "Jürgen Müller <juergen@example.org>",
            formataddr(("Ада", ADA)),
            "info@münchen.example.org",
        ],
    )


def html_beside_text() -> EmailMessage:
    message = EmailMultiAlternatives("Hello", "Hi.\n", to=[ADA])
    message.attach_alternative("<p>Hi ☂.</p>\n", "text/html")
    return message


def html_alone() -> EmailMessage:
    message = EmailMessage("Hello", "<p>Hi.</p>\n", to=[ADA])
    message.content_subtype = "html"
    return message


def html_with_an_empty_text() -> EmailMessage:
    message = EmailMultiAlternatives("Hello", "", to=[ADA])
    message.attach_alternative("<p>Hi.</p>\n", "text/html")
    return message


def files() -> EmailMessage:
    message = EmailMessage("Files", "See below.\n", to=[ADA])
    message.attach("invoice.pdf", b"%PDF-1.7\x00\r\n", "application/pdf")
    message.attach("prices.csv", "Tee;3 €\n", "text/csv")
    message.attach("notes.txt", "grün\n".encode(), "text/plain")
    message.attach("Übersicht.json", '{"a": 1}')
    part = MIMEBase("application", "zip", name="old.zip")
    part.set_payload(b"PK\x03\x04")
    part.add_header("Content-Disposition", "attachment", filename="old.zip")
    message.attach(part)
    return message


def inline_image() -> EmailMessage:
    message = EmailMultiAlternatives("Picture", "Danke!\n", to=[ADA])
    message.attach_alternative(HTML, "text/html")
    image = MIMEImage(PNG, "png")
    image.add_header("Content-ID", "<logo>")
    image.add_header("Content-Disposition", "inline", filename="logo.png")
    message.attach(image)
    message.attach("invoice.pdf", b"%PDF-1.7", "application/pdf")
    return message


def lazy_texts() -> EmailMessage:
    return EmailMessage(gettext_lazy("Hello"), gettext_lazy("Hi.\n"), to=[ADA])


MESSAGES = [
    plain, everyone, reply_to_as_header, own_headers, not_ascii, html_beside_text, html_alone,
    html_with_an_empty_text, files, inline_image, lazy_texts,
]  # fmt: skip
# What Penstock sets itself, and what says how the parts are encoded.
OTHERS = {"date", "message-id", "auto-submitted", "mime-version"}


@pytest.mark.parametrize("make", MESSAGES, ids=lambda make: make.__name__)
async def test_what_arrives_is_what_django_would_send(
    make: Callable[[], EmailMessage], *, project: Project, outbox: Outbox, relay: SmtpServer
) -> None:
    """The message of Django's own SMTP backend is `message()`, and its envelope `recipients()`."""
    expected = read_of(make())

    assert await project.run(make().send) == 1
    await work_until(outbox, relay, 1)

    (received,) = relay.messages
    assert read_of(received.content) == expected
    assert list(received.recipients) == envelope_of(make())
    assert received.sender == "shop@example.com"


def read_of(given: EmailMessage | bytes) -> dict[str, Any]:
    """Return what a reader of the message sees."""
    if isinstance(given, bytes):
        message = read(given)
    else:
        message = message_from_bytes(given.message().as_bytes(), policy=SMTP)
    return {
        "headers": headers_of(message),
        "text": body_of(message, "plain"),
        "html": body_of(message, "html"),
        "files": sorted(map(file_of, files_of(message))),
    }


def headers_of(message: Parsed) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in message.items():
        if name.lower() in OTHERS or name.lower().startswith("content-"):
            continue
        addresses: Any = getattr(value, "addresses", None)
        found[name.lower()] = (
            str(value).strip()  # Django folds a long one before its first word.
            if addresses is None
            else [(each.display_name, each.addr_spec) for each in addresses]
        )
    return found


def body_of(message: Parsed, kind: str) -> str | None:
    part = message.get_body((kind,))
    return None if part is None else text_of(part)


def files_of(message: Parsed) -> list[MIMEPart]:
    return [part for part in message.walk() if part.get_filename() is not None]


def file_of(part: MIMEPart) -> tuple[str, str, str, bytes, str]:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    if part.get_content_maintype() == "text":
        content = content.replace(b"\r\n", b"\n")  # Django's own lines end as those of the mail.
    return (
        part.get_filename() or "",
        part.get_content_type(),
        str(part.get_content_charset() or ""),
        content,
        str(part["Content-ID"] or ""),
    )


def envelope_of(message: EmailMessage) -> list[str]:
    addresses = [each.rpartition("<")[2].rstrip(">") for each in message.recipients()]
    return [each.replace("münchen", "xn--mnchen-3ya") for each in addresses]


async def test_an_inline_image_without_a_file_name_gets_one(
    project: Project, outbox: Outbox, relay: SmtpServer
) -> None:
    """MIMEImage has none unless it is told, and the HTML finds the image by its Content-ID."""

    def work() -> None:
        message = EmailMultiAlternatives("Picture", "Danke!\n", to=[ADA])
        message.attach_alternative(HTML, "text/html")
        image = MIMEImage(PNG)
        image.add_header("Content-ID", "<logo>")
        message.attach(image)
        message.send()

    await project.run(work)
    await work_until(outbox, relay, 1)

    (found,) = files_of(read(relay.messages[0].content))
    assert file_of(found) == ("attachment-1.png", "image/png", "", PNG, "<logo>")
    assert found.get_content_disposition() == "inline"


async def test_a_file_out_of_the_database_is_attached(project: Project, outbox: Outbox) -> None:
    """A BinaryField of PostgreSQL is a memoryview."""

    def work() -> None:
        message = EmailMessage("File", "Hi.\n", to=[ADA])
        stored: Any = memoryview(b"%PDF")
        message.attach("a.pdf", stored, "application/pdf")
        message.send()

    await project.run(work)

    assert await outbox.app.pool.fetchval("SELECT content FROM penstock.mail_blob") == b"%PDF"


async def test_a_part_of_the_new_email_package_is_attached(
    project: Project, outbox: Outbox
) -> None:
    """Django 6 asks for a MIMEPart in place of a MIMEBase."""

    def work() -> None:
        part = MIMEPart()
        part.set_content("BEGIN:VCALENDAR", subtype="calendar", params={"method": "REQUEST"})
        part.add_header("Content-Disposition", "attachment", filename="invitation.ics")
        message = EmailMessage("Meeting", "Hi.\n", to=[ADA])
        message.attachments.append(part)
        message.send()

    await project.run(work)

    (mail,) = await rows_of(outbox)
    assert '"filename": "invitation.ics"' in mail["attachments"]
    assert "text/calendar" in mail["attachments"]
    assert "REQUEST" in mail["attachments"]


async def test_mass_mail_and_mail_to_admins_are_queued(project: Project, outbox: Outbox) -> None:
    def work() -> tuple[int, None]:
        listed = [("One", "Hi.", None, [ADA]), ("Two", "Hi.", None, [BEN])]
        return send_mass_mail(listed), mail_admins("Disk", "is full")

    assert await project.run(work) == (2, None)

    found = [(each["subject"], each["sender"], each["addresses"]) for each in await rows_of(outbox)]
    assert found == [
        ("One", "shop@example.com", [ADA]),
        ("Two", "shop@example.com", [BEN]),
        ("[shop] Disk", "server@example.com", ["root@example.org"]),
    ]


async def test_a_message_without_a_recipient_is_not_counted(
    project: Project, outbox: Outbox
) -> None:
    def work() -> int:
        messages = [EmailMessage("Nobody", "Hi."), EmailMessage("Ada", "Hi.", to=["", ADA])]
        return get_connection().send_messages(messages)

    assert await project.run(work) == 1

    assert [each["subject"] for each in await rows_of(outbox)] == ["Ada"]
