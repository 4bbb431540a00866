"""Events about mails go to webhooks, in the transaction that writes the result."""

from datetime import timedelta

from penstock import Penstock
from penstock.base.clock import FakeClock
from penstock.compose import mail, webhooks
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.relay import SmtpRelay, put_relay
from penstock.testing import run_due
from tests.domains.mail.outbox import ADA, BEN, VAULT, Outbox, a_mail
from tests.smtp_server import HOST, SmtpServer, serving


async def test_each_recipient_becomes_an_event(dsn: str, clock: FakeClock) -> None:
    async with (
        serving(SmtpServer()) as server,
        Penstock(dsn=dsn, domains=[webhooks.DOMAIN, mail.DOMAIN]) as app,
    ):
        relay = SmtpRelay(name="main", host=HOST, port=server.port, tls="none")
        async with app.pool.acquire() as db:
            await put_relay(db, relay, vault=VAULT, who="test")
        server.on("RCPT", "550 5.1.1 no such user", argument=BEN)
        accepted = await app.api(Mailer).send(a_mail(ADA, BEN, tags=["order"]))

        await run_due(app, clock)

        rows = await app.pool.fetch("SELECT type, data FROM penstock.events ORDER BY type")
        assert [row["type"] for row in rows] == ["mail.failed", "mail.sent"]
        assert f'"mail_id": {accepted.id}' in rows[0]["data"]
        assert '"recipient": "ben@example.org"' in rows[0]["data"]
        assert '"enhanced": "5.1.1"' in rows[0]["data"]


async def test_events_that_cannot_be_accepted_do_not_double_a_mail(
    dsn: str, clock: FakeClock
) -> None:
    """A result without its event is better than a second copy."""
    async with (
        serving(SmtpServer()) as server,
        Penstock(dsn=dsn, domains=[webhooks.DOMAIN, mail.DOMAIN]) as app,
    ):
        relay = SmtpRelay(name="main", host=HOST, port=server.port, tls="none")
        async with app.pool.acquire() as db:
            await put_relay(db, relay, vault=VAULT, who="test")
            await db.execute("ALTER TABLE penstock.webhook_event_id ADD CHECK (false)")
        await app.api(Mailer).send(a_mail(ADA))

        await run_due(app, clock)
        clock.advance(timedelta(days=1))
        await run_due(app, clock)

        assert len(server.messages) == 1
        results = await app.pool.fetch("SELECT result FROM penstock.mail_result")
        assert [row["result"] for row in results] == ["sent"]


async def test_a_reply_with_a_nul_does_not_double_a_mail(outbox: Outbox, relay: SmtpServer) -> None:
    relay.on("DOT", "250 queued as \x00")
    mail_id = await outbox.send(ADA)

    await outbox.run()
    await outbox.run_after(days=1)

    assert len(relay.messages) == 1
    assert await outbox.results(mail_id) == ["sent"]
