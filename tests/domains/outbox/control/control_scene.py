"""An outbox whose rail is a list, to show what holds instructions back and what lets them leave."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from httpx import ASGITransport, AsyncClient, Response

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.log import get_logger
from penstock.compose import outbox as composed
from penstock.contract import Domain, Resources, Runtime
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.checks import Control
from penstock.domains.outbox.control.limits import AmountLimits, put_limits
from penstock.domains.outbox.enqueue import NewInstruction, Outbox
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.registry import RailRow, put_rail
from penstock.domains.outbox.verdict import ControlVerdict, Proceed, Stop
from penstock.kernel.api_keys import ApiKey, create_key
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.inspect import ItemView, read_item
from penstock.kernel.item import Dead, Done, Item, ItemId, Outcome, SettledAttempt
from penstock.kernel.lane import read_lane
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import Connection
from penstock.testing import Attempted, run_due
from tests.api.scene import caller

Json = dict[str, Any]

RAIL_CONFIG: Json = {
    "send": {"url": "https://rail.example", "body": {"key": "{key}"}},
    "answer": {"code": ["code"]},
}


@dataclass(slots=True, kw_only=True)
class ListRail:
    """What was sent, in order; `outcomes` are those of the next sends, then all are done."""

    clock: FakeClock
    sent: list[str] = field(default_factory=list[str])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    async def preload(self, db: Connection, items: Sequence[Item[Any]]) -> Sequence[Any]:
        rows = await db.fetch(
            "SELECT * FROM penstock.outbox_instruction WHERE item_id = ANY ($1)",
            [item.id for item in items],
        )
        found = {row["item_id"]: to_instruction(dict(row.items())) for row in rows}
        instructions = [found[item.id] for item in items]
        verdicts = await Control(clock=self.clock).load(db, instructions)
        return list(zip(instructions, verdicts, strict=True))

    async def send(self, item: Item[tuple[Instruction, ControlVerdict]]) -> Outcome:
        instruction, verdict = item.payload
        match verdict:
            case Stop(outcome, code):
                return Dead(outcome.reason, code) if isinstance(outcome, Dead) else outcome
            case Proceed():
                self.sent.append(instruction.instruction_id)
                return self.outcomes.pop(0) if self.outcomes else Done()

    async def record(self, db: Connection, _token: int, settled: Sequence[SettledAttempt]) -> None:
        for each in settled:
            if each.outcome in ARCHIVED:
                instruction, _ = each.preloaded
                code = each.ending.result if isinstance(each.ending, Dead) else None
                await Archive(log=get_logger()).write(
                    db,
                    instruction.outbox_id,
                    ARCHIVED[each.outcome],
                    who="worker",
                    error_code=None if code is None else str(code),
                )


ARCHIVED: Any = {"done": "DISPATCHED", "dead": "FAILED", "retry": "RETRYABLE"}


@dataclass(slots=True, kw_only=True)
class Scene:
    """An open app without a worker, its API, and a clock that moves on demand."""

    app: Penstock
    clock: FakeClock
    rail: ListRail
    transport: ASGITransport
    clients: dict[str, AsyncClient] = field(default_factory=dict[str, AsyncClient])

    async def send(
        self,
        instruction_id: str,
        amount: str = "10",
        *,
        participant: str = "shop",
        rail: str = "sepa",
        currency: str = "EUR",
        key: str = "k-1",
        created_by: str = "test",
    ) -> UUID:
        """Accept an instruction."""
        instruction = NewInstruction(
            instruction_id=instruction_id,
            participant_id=participant,
            idempotency_key=key,
            rail_type=rail,
            payload={"amount": amount, "currency": currency, "destination": {"name": "Ada"}},
        )
        return (await self.app.api(Outbox).send(instruction, who=created_by)).outbox_id

    async def run(self) -> list[Attempted]:
        """Run what is due now."""
        return await run_due(self.app, self.clock)

    async def run_after(self, **wait: float) -> list[Attempted]:
        """Advance the clock, and run what is due then."""
        self.clock.advance(timedelta(**wait))
        return await self.run()

    async def lose(self) -> None:
        """Claim what is due as a worker that dies after the start mark; its lease expires."""
        async with self.app.pool.acquire() as db:
            lane = await read_lane(db, LANE)
            lease = await claim(
                db, lane.lane_id, Cursor(), limit=10, worker="dies", now=self.clock.now()
            )
            assert isinstance(lease, Lease)
            await db.execute(
                "UPDATE penstock.lease SET started_ids = item_ids WHERE token = $1", lease.token
            )
            self.clock.advance(lane.lease + timedelta(seconds=5))
            await rescue(db, now=self.clock.now())

    async def key(self, name: str, *scopes: str, who: str = "cli:ann") -> ApiKey:
        """Make a key, and a client that uses it under the key's name."""
        async with self.app.pool.acquire() as db:
            key, token = await create_key(db, name, scopes, who=who)
        self.clients[name] = await caller(self.transport, token).__aenter__()
        return key

    async def post(self, key_name: str, path: str, **body: Any) -> Response:
        """Call an endpoint with the key of this name, with a reason unless one is given."""
        return await self.clients[key_name].post(path, json={"reason": "because"} | body)

    async def decide(self, key_name: str, verb: str, outbox_id: UUID, **body: Any) -> Response:
        """Decide about an instruction with the key of this name."""
        return await self.post(key_name, f"/outbox/instructions/{outbox_id}/{verb}", **body)

    async def limit(self, **numbers: Any) -> None:
        """Set limits for all, unless a scope is given."""
        given: Json = {"scope": "all", "name": None, "currency": "EUR"}
        async with self.app.pool.acquire() as db:
            await put_limits(db, AmountLimits(**(given | numbers)), who="test")

    async def item(self, outbox_id: UUID) -> ItemView:
        """Return the item of an instruction."""
        async with self.app.pool.acquire() as db:
            item_id = await db.fetchval(
                "SELECT item_id FROM penstock.outbox_instruction WHERE outbox_id = $1", outbox_id
            )
            item = await read_item(db, ItemId(item_id))
        assert item is not None
        return item

    async def archive(self, outbox_id: UUID) -> list[tuple[str, str | None]]:
        """Return the states and error codes of an instruction, in their order."""
        rows = await self.app.pool.fetch(
            "SELECT state, error_code FROM penstock.outbox_attempt WHERE outbox_id = $1 "
            "ORDER BY created_at, xid::text::bigint",
            outbox_id,
        )
        return [(row["state"], row["error_code"]) for row in rows]

    async def audited(self, action: str) -> list[str]:
        """Return who did this, by the audit."""
        rows = await self.app.pool.fetch(
            "SELECT who FROM penstock.audit WHERE action = $1 ORDER BY audit_id", action
        )
        return [row["who"] for row in rows]


@asynccontextmanager
async def opened_scene(dsn: str, clock: FakeClock, *others: Domain) -> AsyncGenerator[Scene]:
    """Open an app with the outbox, whose handler sends to a list, and with other domains."""
    rail = ListRail(clock=clock)

    def build(resources: Resources) -> Runtime:
        runtime = composed.DOMAIN.build(resources)
        kinds = [
            replace(kind, handle=rail.send, preload=rail.preload, record=rail.record)
            for kind in runtime.kinds
        ]
        return replace(runtime, kinds=kinds, services=())

    async with Penstock(dsn=dsn, domains=[*others, replace(composed.DOMAIN, build=build)]) as app:
        transport = ASGITransport(create_app(app), raise_app_exceptions=False)
        scene = Scene(app=app, clock=clock, rail=rail, transport=transport)
        await scene.key("ops", "admin")
        for rail_type in ("sepa", "wire"):
            await add_rail(app, rail_type)
        try:
            yield scene
        finally:
            for client in scene.clients.values():
                await client.aclose()


async def add_rail(app: Penstock, rail_type: str) -> None:
    """Create the row of a rail; nothing is sent to it."""
    row = RailRow(
        rail_type=rail_type,
        adapter="http_json",
        config=RAIL_CONFIG,
        code_set="iso20022",
    )
    async with app.pool.acquire() as db:
        await put_rail(db, row, vault=app.resources.vault, who="test")


def to_instruction(row: Json) -> Instruction:
    del row["created_by"]
    return Instruction(**(row | {"payload": msgspec.json.decode(row["payload"])}))
