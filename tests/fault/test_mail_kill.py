"""A worker that dies with kill -9 while it sends a mail: nobody is missed, and nothing is stuck."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

from penstock import Penstock
from penstock.compose import mail
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.inspect import read_mail
from penstock.domains.mail.relay import SmtpRelay, put_relay
from penstock.kernel.lane import set_lane
from tests.domains.mail.outbox import ADA, VAULT, a_mail
from tests.e2e.command import penstock
from tests.fault.waiting import until
from tests.smtp_server import HOST, SmtpServer, serving

PATIENCE = 60.0  # Seconds; a busy machine starts a process in a few.


async def test_a_mail_of_a_killed_worker_is_sent_again_with_its_message_id(
    dsn: str, tmp_path: Path
) -> None:
    """The relay had the message and its reply was lost: the one case in which a mail is doubled."""
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_DOMAINS": "mail"}
    async with serving(SmtpServer()) as server, Penstock(dsn=dsn, domains=[mail.DOMAIN]) as app:
        relay = SmtpRelay(name="main", host=HOST, port=server.port, tls="none")
        async with app.pool.acquire() as db:
            await put_relay(db, relay, vault=VAULT, who="test")
            await set_lane(db, "penstock.mail", who="test", lease=timedelta(seconds=1))
        server.on("DOT", hang=True)
        mail_id = (await app.api(Mailer).send(a_mail(ADA))).id

        async def has_message() -> bool:
            return bool(server.messages)

        with penstock("worker", folder=tmp_path, environment=environment) as first:
            await until(has_message, within=PATIENCE)
            await asyncio.to_thread(first.stop, signal.SIGKILL)

        async def is_sent() -> bool:
            return (await read_mail(app.pool, mail_id)).status == "sent"

        with penstock("worker", folder=tmp_path, environment=environment) as second:
            await until(is_sent, within=PATIENCE)
            await asyncio.to_thread(second.stop)

        lost, sent = server.messages
        assert lost.content == sent.content
        assert (await read_mail(app.pool, mail_id)).retry_count == 1
