"""Where the flow ends: a webhook receiver and an SMTP server on loopback, which count ids."""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from penstock.cli.demo.tally import Tally
from penstock.domains.webhooks.commands.listen.received import Received
from penstock.domains.webhooks.commands.listen.server import receiving

LOOPBACK = "127.0.0.1"
TAKEN = 204
MESSAGE_ID = re.compile(rb"^Message-ID:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
SETTLED = re.compile(rb"^Subject: .*: settled\r?$", re.IGNORECASE | re.MULTILINE)


@asynccontextmanager
async def receiving_events(events: Tally) -> AsyncGenerator[str]:
    """Count events by their id while the body runs, and yield the URL to send them to."""

    def answer(request: Received) -> int:
        events.note(request.headers["webhook-id"])
        return TAKEN

    async with receiving(answer, host=LOOPBACK, port=0) as url:
        yield url


@asynccontextmanager
async def receiving_mails(mails: Tally) -> AsyncGenerator[int]:
    """Count mails by their Message-ID while the body runs, and yield the port of the server.

    Only those that say that a payment is settled: there are others when it is executed, and when a
    killed worker leaves it in doubt.
    """
    # By name, as the package belongs to the extra `demo`; it has no types.
    smtp: Any = importlib.import_module("aiosmtpd.smtp")
    loop = asyncio.get_running_loop()
    handler = _Mailbox(mails)
    server = await loop.create_server(
        lambda: smtp.SMTP(handler, hostname="localhost", loop=loop), LOOPBACK, 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class _Mailbox:
    """Takes every mail, and keeps its Message-ID."""

    mails: Tally

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802  aiosmtpd calls it.
        found = MESSAGE_ID.search(envelope.content)
        if found is None:
            return "550 5.6.0 no Message-ID"
        if SETTLED.search(envelope.content):
            self.mails.note(found[1].decode("ascii"))
        return "250 2.0.0 taken"
