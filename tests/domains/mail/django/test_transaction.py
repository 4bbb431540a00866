"""A mail is part of Django's own transaction, and leaves once that has committed."""

from contextlib import suppress

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import EmailMessage, send_mail
from django.db import connections, transaction
from django.test import override_settings

from tests.domains.mail.django.project import Project
from tests.domains.mail.django.scene import RolledBack, post_order, rows_of, work_until
from tests.domains.mail.django.shop.models import Order
from tests.domains.mail.outbox import ADA, Outbox
from tests.domains.mail.scene import read
from tests.smtp_server import SmtpServer


async def test_a_view_that_commits_sends_exactly_one_mail(
    project: Project, outbox: Outbox, relay: SmtpServer
) -> None:
    """A view that rolls back sends none, although it has called send_mail."""
    assert await project.run(post_order(is_out_of_stock="1")) == 409
    assert await project.run(post_order()) == 201

    await work_until(outbox, relay, 1)

    assert [each.recipients for each in relay.messages] == [(ADA,)]
    assert read(relay.messages[0].content)["Subject"] == "Order 17"
    (mail,) = await rows_of(outbox)
    assert (await outbox.row(mail["id"]))["status"] == "sent"
    assert await project.run(Order.objects.count) == 1


async def test_a_mail_outside_a_transaction_is_committed_at_once(
    project: Project, outbox: Outbox
) -> None:
    sent = await project.run(lambda: send_mail("Hello", "Hi.", None, [ADA]))

    assert sent == 1
    assert len(await rows_of(outbox)) == 1


async def test_a_rollback_to_a_savepoint_removes_the_mail_after_it(
    project: Project, outbox: Outbox
) -> None:
    def work() -> None:
        with transaction.atomic():
            send_mail("kept", "Hi.", None, [ADA])
            with suppress(RolledBack), transaction.atomic():
                send_mail("removed", "Hi.", None, [ADA])
                raise RolledBack

    await project.run(work)

    assert [each["subject"] for each in await rows_of(outbox)] == ["kept"]


async def test_a_setting_chooses_the_connection(project: Project, outbox: Outbox) -> None:
    """A mail on another connection is not part of the transaction on the default one."""

    def work() -> None:
        with suppress(RolledBack), transaction.atomic():
            send_mail("kept", "Hi.", None, [ADA])
            with suppress(RolledBack), transaction.atomic(using="second"):
                send_mail("removed", "Hi.", None, [ADA])
                raise RolledBack
            raise RolledBack

    with override_settings(PENSTOCK_DATABASE_ALIAS="second"):
        await project.run(work)

    assert [each["subject"] for each in await rows_of(outbox)] == ["kept"]


async def test_a_database_other_than_postgresql_is_refused(project: Project) -> None:
    with (
        override_settings(PENSTOCK_DATABASE_ALIAS="lite"),
        pytest.raises(ImproperlyConfigured, match="PENSTOCK_DATABASE_ALIAS: the database 'lite'"),
    ):
        await project.run(lambda: send_mail("Hello", "Hi.", None, [ADA]))


async def test_a_connection_with_server_side_parameters_works(
    project: Project, outbox: Outbox
) -> None:
    def work() -> None:
        message = EmailMessage("Hello", "Hi.", to=[ADA], headers={"X-Penstock-Tags": "a, b"})
        message.attach("a.bin", b"\x00%s", "application/octet-stream")
        message.send()

    connections.settings["second"]["OPTIONS"]["server_side_binding"] = True
    with override_settings(PENSTOCK_DATABASE_ALIAS="second"):
        await project.run(work)

    (mail,) = await rows_of(outbox)
    assert mail["tags"] == ["a", "b"]
