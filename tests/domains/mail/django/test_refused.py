"""Bad input is refused in send(), with the field; nothing is queued."""

from email.mime.multipart import MIMEMultipart
from typing import Any

import pytest
from django.core.mail import (
    BadHeaderError,
    EmailMessage,
    EmailMultiAlternatives,
    get_connection,
    send_mass_mail,
)
from django.db import DatabaseError, transaction

from penstock.django import InvalidMessage
from tests.domains.mail.django.project import Project
from tests.domains.mail.django.scene import post_order, rows_of
from tests.domains.mail.django.shop.models import Order
from tests.domains.mail.outbox import ADA, Outbox


def a_message(**more: Any) -> EmailMessage:
    given: dict[str, Any] = {"subject": "Hello", "body": "Hi.", "to": [ADA]}
    return EmailMultiAlternatives(**(given | more))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "line break in the subject": ({"subject": "Hi\nBcc: eve@example.org"}, "subject"),
    "line break in a header": ({"headers": {"X-A": "b\r\nBcc: eve@example.org"}}, "headers.X-A"),
    "line break in a name": ({"to": ["Ada\nBcc: eve <ada@example.org>"]}, "to[0]"),
    "encoded line break in a name": (
        {"to": ["=?utf-8?q?Ada=0ABcc=3A_eve?= <ada@example.org>"]},
        "to[0]",
    ),
    "line break in the reply address": (
        {"headers": {"Reply-To": "a@example.org\nBcc: eve@example.org"}},
        "headers.Reply-To",
    ),
    "not an address": ({"to": [ADA, "nobody"]}, "to[1]"),
    "two addresses in one text": ({"cc": ["a@example.org, b@example.org"]}, "cc[0]"),
    "sender without a domain": ({"from_email": "webmaster@localhost"}, "from"),
    "header of Penstock": ({"headers": {"Message-ID": "<a@b>"}}, "headers.Message-ID"),
    "other sender in a header": ({"headers": {"From": "b@example.org"}}, "headers.From"),
    "misspelt header": ({"headers": {"X-Penstock-Tag": "a"}}, "headers.X-Penstock-Tag"),
    "bulk": ({"headers": {"X-Penstock-Bulk": "maybe"}}, "headers.X-Penstock-Bulk"),
    "instant": ({"headers": {"X-Penstock-Not-Before": "soon"}}, "headers.X-Penstock-Not-Before"),
    "instant without zone": ({"headers": {"X-Penstock-Not-Before": "2030-01-01"}}, "not_before"),
    "unknown relay": ({"headers": {"X-Penstock-Relay": "nowhere"}}, "relay"),
    "second text": ({"alternatives": [("Hi again.", "text/plain")]}, "alternatives[0]"),
    "calendar": ({"alternatives": [("BEGIN:VCALENDAR", "text/calendar")]}, "alternatives[0]"),
    "path": ({"attachments": [("a/b.txt", "x", "text/plain")]}, "attachments[0].filename"),
    "message": (
        {"attachments": [("a.eml", EmailMessage("A", "B"), "message/rfc822")]},
        "attachments[0]",
    ),
    "multipart": ({"attachments": [MIMEMultipart()]}, "attachments[0].content_type"),
    "large file": (
        {"attachments": [("a.bin", bytes(10 * 2**20 + 1), "application/zip")]},
        "attachments[0]",
    ),
    "101 recipients": ({"bcc": [f"a{number}@example.org" for number in range(100)]}, "to"),
}


@pytest.mark.parametrize(("more", "field"), REFUSED.values(), ids=REFUSED)
async def test_a_refusal_names_the_field_and_queues_nothing(
    more: dict[str, Any], field: str, *, project: Project, outbox: Outbox
) -> None:
    """A mail that fails in the worker would be noticed by nobody."""
    with pytest.raises(InvalidMessage) as refused:
        await project.run(a_message(**more).send)

    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")
    assert isinstance(refused.value, BadHeaderError | ValueError)
    assert await project.run(lambda: a_message(**more).send(fail_silently=True)) == 0
    assert await rows_of(outbox) == []


async def test_a_view_that_catches_bad_headers_still_does(project: Project, outbox: Outbox) -> None:
    """As Django's documentation tells authors of contact forms to do; the order is rolled back."""
    assert await project.run(post_order(subject="Hi\nBcc: eve@example.org")) == 400

    assert await rows_of(outbox) == []
    assert await project.run(Order.objects.count) == 0


async def test_of_a_mass_mail_all_messages_are_queued_or_none(
    project: Project, outbox: Outbox
) -> None:
    """A caller could not safely repeat a call that was accepted in part."""
    listed = [("One", "Hi.", None, [ADA]), ("Two", "Hi.", None, ["nobody"])]

    with pytest.raises(InvalidMessage, match=r"^messages\[1\]\.to\[0\]: "):
        await project.run(lambda: send_mass_mail(listed))

    assert await rows_of(outbox) == []


async def test_silent_failures_are_left_out_and_the_transaction_goes_on(
    project: Project, outbox: Outbox
) -> None:
    """Python refuses the first message, and the database the third; both cost nothing else."""
    keyed = {"X-Penstock-Key": "order-17"}

    def work() -> int:
        messages = [
            a_message(subject="One", to=["nobody"]),
            a_message(subject="Two", headers=keyed),
            a_message(subject="Three", headers=keyed),
            a_message(subject="Four"),
        ]
        with transaction.atomic():
            sent = get_connection(fail_silently=True).send_messages(messages)
            Order.objects.create(number=17)
        return sent

    assert await project.run(work) == 2

    assert [each["subject"] for each in await rows_of(outbox)] == ["Two", "Four"]
    assert await project.run(Order.objects.count) == 1


async def test_an_error_of_the_database_is_silent_too_if_asked(
    project: Project, outbox: Outbox
) -> None:
    await outbox.app.pool.execute("ALTER FUNCTION penstock.send_mails RENAME TO gone")

    with pytest.raises(DatabaseError):
        await project.run(a_message().send)

    assert await project.run(lambda: a_message().send(fail_silently=True)) == 0
