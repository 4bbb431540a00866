"""What tests of the outbox do again and again: send, run what is due, look at the view."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from httpx import AsyncClient, Response

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.settings import Settings
from penstock.base.vault import Vault
from penstock.compose import mail as composed
from penstock.contract import Resources, Runtime
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.new_mail import NewMail
from penstock.domains.mail.relay import MailLimit, SmtpRelay, put_limit, put_relay
from penstock.domains.mail.settings import MailSettings
from penstock.kernel.lane import set_lane
from penstock.limits.gate import ProcessGate
from penstock.testing import Attempted, run_due
from tests.api.scene import called
from tests.smtp_server import HOST, SmtpServer

ADA = "ada@example.org"
BEN = "ben@example.org"
SHOP = "Shop <shop@example.com>"
VAULT = Vault(b"k" * 32)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """An app with mail alone, a client that may do everything, and a clock that moves on demand."""

    app: Penstock
    client: AsyncClient
    clock: FakeClock

    async def send(self, *to: str, **more: Any) -> int:
        """Have a mail accepted, and return its id."""
        accepted = await self.app.api(Mailer).send(a_mail(*to, **more))
        return accepted.id

    async def run(self) -> list[Attempted]:
        """Run what is due now."""
        return await run_due(self.app, self.clock)

    async def run_after(self, **wait: float) -> list[Attempted]:
        """Advance the clock, and run what is due then."""
        self.clock.advance(timedelta(**wait))
        return await self.run()

    async def row(self, mail_id: int) -> Json:
        """Return the mail as the view shows it."""
        row = await self.app.pool.fetchrow(
            "SELECT * FROM penstock.mail_outbox WHERE id = $1", mail_id
        )
        assert row is not None
        return dict(row.items())

    async def results(self, mail_id: int) -> list[str]:
        """Return the results of the recipients, in their order."""
        rows = await self.app.pool.fetch(
            "SELECT result FROM penstock.mail_result WHERE mail_id = $1 ORDER BY recipient_no",
            mail_id,
        )
        return [row["result"] for row in rows]

    async def relay_to(self, server: SmtpServer, name: str = "main", **more: Any) -> None:
        """Add a relay that is this server."""
        relay = SmtpRelay(name=name, host=HOST, port=server.port, tls="none")
        async with self.app.pool.acquire() as db:
            await put_relay(db, replace(relay, **more), vault=VAULT, who="test")

    async def limit(self, scope: Any, name: str, **numbers: Any) -> None:
        """Set a limit."""
        async with self.app.pool.acquire() as db:
            await put_limit(db, MailLimit(scope=scope, name=name, **numbers), who="test")

    async def set_lane(self, **policy: Any) -> None:
        """Change the transactional lane."""
        async with self.app.pool.acquire() as db:
            await set_lane(db, "penstock.mail", who="test", **policy)


def a_mail(*to: str, **more: Any) -> NewMail:
    given: Json = {"sender": SHOP, "to": to or (ADA,), "subject": "Hello", "text": "Hi.\n"}
    return NewMail(**(given | more))


@asynccontextmanager
async def opened_outbox(
    dsn: str,
    clock: FakeClock,
    *,
    settings: Json | None = None,
    gate: ProcessGate | None = None,
    **chosen: Any,
) -> AsyncGenerator[Outbox]:
    """Open an app that has mail and nothing else, with other settings than the environment's."""

    def build(resources: Resources) -> Runtime:
        lent = replace(
            resources,
            settings=Settings(**(settings or {})),
            gate=resources.gate if gate is None else gate,
        )
        return composed.build_with(lent, MailSettings(**chosen))

    async with (
        Penstock(dsn=dsn, domains=[replace(composed.DOMAIN, build=build)]) as app,
        called(app, create_app(app)) as callers,
    ):
        yield Outbox(app=app, client=callers.admin, clock=clock)


def body_of(response: Response, status: int = 200) -> Any:
    """Return the JSON of an answer that has to be a good one."""
    assert response.status_code == status, response.text
    return response.json()
