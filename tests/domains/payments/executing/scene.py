"""What tests of payments do again and again: schedule, run what is due, look at what became of it.

All domains are composed as in production, on one database. Only the rail is a ledger on loopback,
which does what a test orders.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.log import get_logger
from penstock.base.settings import settings
from penstock.compose import mail, outbox, payments, webhooks
from penstock.contract import Domain, Kind, Resources, Runtime
from penstock.domains.outbox.check_call import CallChecker
from penstock.domains.outbox.loader import InstructionLoader
from penstock.domains.outbox.send import Send
from penstock.domains.payments.kept_results import KeptResults
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Scheduled
from penstock.domains.payments.results import PaymentResults
from penstock.domains.payments.schedule import Payments
from penstock.kernel.claim import Cursor, Lease, SlotRange, claim
from penstock.kernel.item import Outcome
from penstock.kernel.lane import read_lane, set_lane
from penstock.kernel.preload import preload
from penstock.testing import Attempted, run_due
from tests.api.scene import called
from tests.domains.outbox.sending.ledger import Ledger, OneRail, loaded
from tests.domains.outbox.sending.scene import Allowing
from tests.domains.payments.scene import a_payment

Json = dict[str, Any]

LEASE_OVER = timedelta(minutes=3)  # The lease of the lane is 2 minutes.

# Goes on with its handlers.
Stalled: TypeAlias = Callable[[], Awaitable[Sequence[Outcome | Exception | None]]]

NOW: Json = {"execute_at": None, "rail_type": "loopback", "notify": {}}


@dataclass(slots=True, kw_only=True)
class Scene:
    """An open app with payments, outbox, webhooks and mail, and no worker."""

    app: Penstock
    client: AsyncClient
    clock: FakeClock
    ledger: Ledger

    async def schedule(self, *payment_ids: str, **more: Any) -> None:
        """Schedule payments that are due now."""
        answers = await self.app.api(Payments).schedule_many(
            [a_payment(each, **NOW | more) for each in payment_ids]
        )
        assert all(isinstance(each, Scheduled) for each in answers), answers

    async def spoil(self, payment_id: str, *, version: int = 1, **context: Any) -> None:
        """Change the context of a payment to what its execution cannot use."""
        async with self.app.pool.acquire() as db, db.transaction():
            # A context is append-only: what runs as a replica fires no trigger.
            await db.execute("SET LOCAL session_replication_role = replica")
            await db.execute(
                "UPDATE penstock.payment_exec_context"
                " SET context_json = context_json || $2, context_version = $3"
                " WHERE payment_id = $1",
                payment_id,
                json.dumps(context),
                version,
            )

    async def run(self) -> list[Attempted]:
        """Run what is due now, in all lanes: execute payments, and pay their instructions."""
        return await run_due(self.app, self.clock)

    async def run_payments(self) -> list[Attempted]:
        """Run the payments that are due; their instructions wait."""
        return await self._run_without(self.app.kinds.keys() - {LANE})

    async def run_outbox(self) -> list[Attempted]:
        """Pay the instructions that are due; payments wait."""
        return await self._run_without({LANE})

    async def _run_without(self, lanes: Iterable[str]) -> list[Attempted]:
        kinds = dict(self.app.kinds)
        try:
            for lane in lanes:
                del self.app.kinds[lane]
            return await self.run()
        finally:
            self.app.kinds.update(kinds)

    async def claim_and_stall(self) -> Stalled:
        """Claim what is due, as a worker that is suspended before it executes anything."""
        kind = self.app.kinds[LANE]
        assert kind.handle_many is not None
        async with self.app.pool.acquire() as db:
            lane = await read_lane(db, LANE)
            lease = await claim(
                db,
                lane.lane_id,
                Cursor(),
                limit=10,
                worker="dies",
                slots=SlotRange(ahead=timedelta(0)),
                now=self.clock.now(),
            )
            assert isinstance(lease, Lease)
            loaded = await preload(db, lease, kind)
        items = [each.preloaded for each in loaded.items if each.preloaded is not None]
        return partial(kind.handle_many, items)

    async def execute_and_die(self) -> None:
        """Execute what is due as a worker that dies after its commit: nothing is settled."""
        go_on = await self.claim_and_stall()
        await go_on()

    async def apply_kept(self) -> int:
        """Apply results that were kept; return how many were due."""
        kept = KeptResults(pool=self.app.pool, results=self.results(), log=get_logger())
        return await kept.apply_once()

    def results(self) -> PaymentResults:
        """Return what applies results, as this process composes it."""
        log = get_logger()
        return PaymentResults(notify=payments.make_notifier(settings(), log=log), log=log)

    async def payment(self, payment_id: str) -> Json:
        """Return the row of a payment."""
        row = await self.app.pool.fetchrow(
            "SELECT * FROM penstock.payment WHERE payment_id = $1", payment_id
        )
        assert row is not None
        return dict(row.items())

    async def status(self, payment_id: str) -> str:
        """Return the status of a payment."""
        return str((await self.payment(payment_id))["status"])

    async def events(self, kind: str = "payment.") -> list[tuple[str, Json]]:
        """Return the accepted events of a kind, in their order."""
        rows = await self.app.pool.fetch(
            "SELECT type, data FROM penstock.webhook_event WHERE starts_with(type, $1)"
            " ORDER BY event_no",
            kind,
        )
        return [(row["type"], json.loads(row["data"])) for row in rows]

    async def mails(self) -> list[tuple[list[str], str]]:
        """Return the addresses and the subjects of the accepted mails."""
        rows = await self.app.pool.fetch("SELECT addresses, subject FROM penstock.mail ORDER BY id")
        return [(row["addresses"], row["subject"]) for row in rows]

    async def log(self, payment_id: str | None = None) -> list[Json]:
        """Return the audit log of dispatches, of one payment or of all."""
        rows = await self.app.pool.fetch(
            "SELECT * FROM penstock.dispatch_audit_log"
            " WHERE $1::text IS NULL OR payment_id = $1 ORDER BY audit_id",
            payment_id,
        )
        return [dict(row.items()) for row in rows]

    async def item_states(self) -> list[str]:
        """Return where the items of payments are."""
        rows = await self.app.pool.fetch(
            "SELECT state FROM penstock.locate(ARRAY(SELECT item_id FROM penstock.payment))"
        )
        return sorted(row["state"] for row in rows)

    async def set_lane(self, **policy: Any) -> None:
        """Change the lane of payments."""
        async with self.app.pool.acquire() as db:
            await set_lane(db, LANE, who="test", **policy)


@asynccontextmanager
async def opened_scene(
    dsn: str, clock: FakeClock, ledger: Ledger, *others: Domain
) -> AsyncGenerator[Scene]:
    """Open an app whose rail is the ledger."""
    domains = [webhooks.DOMAIN, mail.DOMAIN, ledger_outbox(ledger, clock)]
    async with (
        Penstock(dsn=dsn, domains=[*domains, *(others or (payments.DOMAIN,))]) as app,
        called(app, create_app(app)) as callers,
    ):
        yield Scene(app=app, client=callers.admin, clock=clock, ledger=ledger)


def ledger_outbox(ledger: Ledger, clock: FakeClock) -> Domain:
    """Return the composed outbox, whose rail is the ledger."""
    return replace(outbox.DOMAIN, build=_outbox(ledger, clock))


def _outbox(ledger: Ledger, clock: FakeClock) -> Any:
    """Return the factory of the composed outbox with one rail, which leads to the ledger."""

    def build(resources: Resources) -> Runtime:
        runtime = outbox.DOMAIN.build(resources)
        rails = OneRail(loaded(ledger.port, can_query=True))
        send = Send(
            checker=CallChecker(resources.pool),
            validate=lambda _instruction, _rail: None,
            clock=clock,
            log=resources.log,
        )
        preload = InstructionLoader(rails=rails, control=Allowing()).preload
        kinds = [_sending(kind, send, preload) for kind in runtime.kinds]
        return replace(runtime, kinds=kinds, services=())

    return build


def _sending(kind: Kind[Any], send: Send, preload: Any) -> Kind[Any]:
    return replace(kind, handle=send, preload=preload)
