"""Headers that begin with X-Penstock- set fields of a mail, and are not sent."""

from typing import Any

import pytest
from django.core.mail import EmailMessage
from django.db import transaction

from penstock.kernel.errors import KeyConflict
from tests.domains.mail.django.project import Project
from tests.domains.mail.django.scene import rows_of, work_until
from tests.domains.mail.django.shop.models import Order
from tests.domains.mail.outbox import ADA, BEN, Outbox
from tests.smtp_server import SmtpServer


async def test_headers_set_key_tags_lane_times_and_relay_and_are_not_sent(
    project: Project, outbox: Outbox, relay: SmtpServer
) -> None:
    headers: dict[str, Any] = {
        "X-Penstock-Key": "order-17",
        "X-Penstock-Tags": "orders, first",
        "X-Penstock-Bulk": True,
        "X-Penstock-Not-Before": "2020-01-01T08:00:00+00:00",
        "X-Penstock-Not-After": "2199-01-01T08:00:00Z",
        "x-penstock-relay": "main",
        "X-Campaign": "spring",
    }

    def work() -> int:
        return EmailMessage("Hello", "Hi.", to=[ADA], headers=headers).send()

    assert [await project.run(work), await project.run(work)] == [1, 1]
    await work_until(outbox, relay, 1)

    (mail,) = await rows_of(outbox)
    assert (mail["lane"], mail["tags"], mail["relay"]) == (
        "penstock.mail.bulk",
        ["orders", "first"],
        "main",
    )
    (received,) = relay.messages
    assert b"penstock" not in received.content.lower()
    assert b"X-Campaign: spring" in received.content


async def test_a_mail_is_not_sent_before_its_instant(project: Project, outbox: Outbox) -> None:
    headers = {"X-Penstock-Not-Before": "2199-01-01 08:00:00+00:00"}

    await project.run(EmailMessage("Hello", "Hi.", to=[ADA], headers=headers).send)

    assert await outbox.run() == []
    (mail,) = await rows_of(outbox)
    assert (await outbox.row(mail["id"]))["next_attempt_at"].year == 2199


async def test_a_header_with_none_sets_nothing(project: Project, outbox: Outbox) -> None:
    """The text None would be one key for all mails."""
    headers: dict[str, Any] = {"X-Penstock-Key": None}

    for to in (ADA, BEN):
        await project.run(EmailMessage("Hello", "Hi.", to=[to], headers=headers).send)

    assert len(await rows_of(outbox)) == 2


async def test_a_known_key_with_another_content_is_a_conflict(
    project: Project, outbox: Outbox
) -> None:
    """The transaction can go on after it."""

    def work() -> None:
        headers = {"X-Penstock-Key": "order-17"}
        with transaction.atomic():
            EmailMessage("Hello", "Hi.", to=[ADA], headers=headers).send()
            with pytest.raises(KeyConflict):
                EmailMessage("Hello", "Hi.", to=[BEN], headers=headers).send()
            Order.objects.create(number=17)

    await project.run(work)

    assert [each["addresses"] for each in await rows_of(outbox)] == [[ADA]]
    assert await project.run(Order.objects.count) == 1


async def test_a_key_of_the_other_lane_is_a_conflict(project: Project, outbox: Outbox) -> None:
    def send(*, bulk: bool) -> int:
        headers = {"X-Penstock-Key": "order-17", "X-Penstock-Bulk": str(bulk)}
        return EmailMessage("Hello", "Hi.", to=[ADA], headers=headers).send()

    await project.run(lambda: send(bulk=False))
    with pytest.raises(KeyConflict, match="another bulk"):
        await project.run(lambda: send(bulk=True))

    assert len(await rows_of(outbox)) == 1
