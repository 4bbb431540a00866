"""The handler of the outbox with one rail, composed by hand, and what its tests need."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import Clock, FakeClock
from penstock.contract import Domain, Kind, OwnedLane, Resources, Runtime, Service
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.check_call import CallChecker
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.ending import hold_unknown
from penstock.domains.outbox.errors import BadSignature, ResultMismatch, UnknownInstruction
from penstock.domains.outbox.event import OutboxEvent
from penstock.domains.outbox.http.results import ResultApi, endpoints
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.loader import Controls, InstructionLoader, OutboxRef
from penstock.domains.outbox.rails.rail import LoadedRail, Rails
from penstock.domains.outbox.reconcile.reconciler import Reconciler
from penstock.domains.outbox.reconcile.resolve import Resolver
from penstock.domains.outbox.reconcile.results import Results
from penstock.domains.outbox.send import HANDLER_TIMEOUT, Send
from penstock.domains.outbox.verdict import ControlVerdict, Proceed
from penstock.kernel.claim import Cursor, Lease, SlotRange, claim
from penstock.kernel.enqueue import enqueue
from penstock.kernel.item import NewItem
from penstock.kernel.lane import read_lane
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import Connection, Pool, Queries
from penstock.testing import Attempted, run_due
from tests.api.scene import called
from tests.domains.outbox.sending.ledger import OneRail

SECRET = "a secret of the loopback rail"


class Allowing:
    """A control that stops nothing, unless the test puts in a verdict.

    `meanwhile` is called between the load of the instructions and their calls.
    """

    def __init__(self) -> None:
        self.verdict: ControlVerdict = Proceed()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def load(
        self,
        db: Connection,  # noqa: ARG002
        instructions: Sequence[Instruction],
    ) -> list[ControlVerdict]:
        if self.meanwhile is not None:
            await self.meanwhile()
        return [self.verdict for _ in instructions]


def build(
    resources: Resources,
    *,
    rails: Rails,
    control: Controls,
    clock: Clock,
    events: list[OutboxEvent],
    crash_point: CrashPoint = never_crash,
    invalid: Sequence[str] = (),
) -> tuple[Runtime, Reconciler]:
    """Compose the handler, the archive, the reconciler and the endpoints."""

    async def announce(_db: Connection, announced: Sequence[OutboxEvent]) -> None:
        events.extend(announced)

    async def secret_of(_db: Queries, rail_type: str) -> str | None:
        return SECRET if rail_type == "loopback" else None

    def validate(instruction: Instruction, _rail: LoadedRail) -> str | None:
        return "amount: is not valid" if instruction.instruction_id in invalid else None

    loader = InstructionLoader(rails=rails, control=control)
    archive = Archive(log=resources.log, listeners=[announce], crash_point=crash_point)
    resolver = Resolver(archive=archive)
    results = Results(rails=rails, resolver=resolver, secret_of=secret_of, log=resources.log)
    reconciler = Reconciler(
        pool=resources.pool,
        loader=loader,
        resolver=resolver,
        results=results,
        clock=clock,
        log=resources.log,
        crash_point=crash_point,
    )
    send = Send(
        checker=CallChecker(resources.pool),
        validate=validate,
        clock=clock,
        log=resources.log,
        crash_point=crash_point,
    )
    kind = Kind(
        lane=LANE,
        payload_type=OutboxRef,
        handle=send,
        preload=loader.preload,
        record=archive.record,
        timeout=HANDLER_TIMEOUT,
        when_unknown=hold_unknown,
    )
    runtime = Runtime(
        kinds=[kind],
        endpoints=endpoints(ResultApi(results=results, resolver=resolver, clock=clock)),
        services=[Service(name="outbox.reconcile", run=reconciler.run)],
    )
    return runtime, reconciler


@dataclass(slots=True, kw_only=True)
class Outbox:
    """An app with the sending half of the outbox; the clock moves on demand."""

    app: Penstock
    client: AsyncClient
    stranger: AsyncClient
    clock: FakeClock
    rails: OneRail
    control: Allowing
    reconciler: Reconciler
    events: list[OutboxEvent]
    invalid: list[str]
    labels: dict[str, Any] = field(default_factory=dict[str, Any])

    async def send(self, name: str = "i1", **more: Any) -> UUID:
        """Have an instruction accepted; its name is its instruction_id."""
        async with self.app.pool.acquire() as db:
            return await accept(db, name, now=self.clock.now(), **more)

    async def run(self) -> list[Attempted]:
        """Run what is due now."""
        return await run_due(self.app, self.clock)

    async def run_after(self, **wait: float) -> list[Attempted]:
        """Advance the clock, and run what is due then."""
        self.clock.advance(timedelta(**wait))
        return await self.run()

    async def lose(self) -> int:
        """Claim what is due as a worker that dies after the start mark; return its token."""
        async with self.app.pool.acquire() as db:
            lane = await read_lane(db, LANE)
            found = await claim(
                db,
                lane.lane_id,
                Cursor(),
                limit=10,
                worker="dies",
                slots=SlotRange(ahead=timedelta(0)),
                now=self.clock.now(),
            )
            assert isinstance(found, Lease)
            await db.execute(
                "UPDATE penstock.lease SET started_ids = item_ids WHERE token = $1", found.token
            )
        return found.token

    async def sweep(self, **wait: float) -> None:
        """Advance the clock, and let the sweeper see leases that have expired."""
        self.clock.advance(timedelta(**wait))
        async with self.app.pool.acquire() as db:
            await rescue(db, now=self.clock.now())

    async def reconcile(self, **wait: float) -> int:
        """Advance the clock, and reconcile what is due then."""
        self.clock.advance(timedelta(**wait))
        return await self.reconciler.run_once()

    async def states(self, outbox_id: UUID) -> list[str]:
        """Return the states of the archive, in their order."""
        return [row["state"] for row in await self.rows(outbox_id)]

    async def rows(self, outbox_id: UUID) -> list[dict[str, Any]]:
        """Return the rows of the archive, in their order."""
        rows = await self.app.pool.fetch(
            """
            SELECT * FROM penstock.outbox_attempt WHERE outbox_id = $1
            ORDER BY created_at, attempt_id
            """,
            outbox_id,
        )
        return [dict(row.items()) for row in rows]

    async def item_state(self, outbox_id: UUID) -> str:
        """Return where the kernel has the item."""
        return await item_state(self.app.pool, outbox_id)


async def accept(
    db: Connection,
    name: str,
    *,
    now: Any = None,
    participant: str = "p1",
    amount: str = "12.50",
    rail_type: str = "loopback",
) -> UUID:
    """Write an instruction and its item, as the producer's function does."""
    outbox_id = uuid4()
    async with db.transaction():
        item = NewItem(
            payload={"outbox_id": str(outbox_id)}, key=name, order_key=participant, due_at=now
        )
        accepted = await enqueue(db, LANE, item, owner=OWNER)
        await db.execute(
            """
            INSERT INTO penstock.outbox_instruction
            SELECT $1, $2, $3, $4, coalesce(max(sequence_id), 0) + 1, $3, $6,
                jsonb_build_object('amount', $5::text, 'currency', 'EUR'), $5::numeric, 'EUR',
                now(), 'test'
            FROM penstock.outbox_instruction WHERE participant_id = $4
            """,
            outbox_id,
            accepted.id,
            name,
            participant,
            amount,
            rail_type,
        )
    return outbox_id


async def item_state(pool: Pool, outbox_id: UUID) -> str:
    return await pool.fetchval(
        """
        SELECT l.state FROM penstock.outbox_instruction AS i
        CROSS JOIN LATERAL penstock.locate(ARRAY[i.item_id]) AS l
        WHERE i.outbox_id = $1
        """,
        outbox_id,
    )


def domain(make: Any) -> Domain:
    """Return the domain with this factory."""
    return Domain(
        name=OWNER,
        build=make,
        migration_packages=("penstock.domains.outbox",),
        lanes=(OwnedLane(name=LANE, policy=POLICY, guards=GUARDS),),
        errors=(BadSignature, ResultMismatch, UnknownInstruction),
    )


@asynccontextmanager
async def opened_outbox(
    dsn: str,
    clock: FakeClock,
    rail: LoadedRail | Rails,
    *,
    crash_point: CrashPoint = never_crash,
    domain_clock: Clock | None = None,
) -> AsyncGenerator[Outbox]:
    """Open an app that has this half of the outbox and nothing else; no worker runs.

    `domain_clock` is the domain's, if it is not that of the test.
    """
    one = OneRail(rail if isinstance(rail, LoadedRail) else None)
    rails, control = one if isinstance(rail, LoadedRail) else rail, Allowing()
    events: list[OutboxEvent] = []
    invalid: list[str] = []
    made: list[Reconciler] = []

    def make(resources: Resources) -> Runtime:
        runtime, reconciler = build(
            resources,
            rails=rails,
            control=control,
            clock=domain_clock or clock,
            events=events,
            crash_point=crash_point,
            invalid=invalid,
        )
        made.append(reconciler)
        return runtime

    async with (
        Penstock(dsn=dsn, domains=[domain(make)]) as app,
        called(app, create_app(app)) as callers,
    ):
        yield Outbox(
            app=app,
            client=callers.admin,
            stranger=callers.stranger,
            clock=clock,
            rails=one,
            control=control,
            reconciler=made[0],
            events=events,
            invalid=invalid,
        )
