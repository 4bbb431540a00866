"""What tests of the outbox do again and again: send, run what is due, look at the views."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from httpx import AsyncClient, Response

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.compose import outbox as composed
from penstock.contract import Resources, Runtime
from penstock.domains.outbox.enqueue import NewInstruction, Outbox
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.item import Done, Item, Outcome, SettledAttempt
from penstock.kernel.lane import set_lane
from penstock.postgres.pool import Connection
from penstock.testing import Attempted, run_due
from tests.api.scene import called

Json = dict[str, Any]
Handle = Callable[[Item[Any]], Awaitable[Outcome]]

IBAN = "DE89370400440532013000"
STATES = {
    "done": "DISPATCHED", "retry": "RETRYABLE", "dead": "FAILED", "hold": "UNKNOWN"
}  # fmt: skip
RECORD = """
    INSERT INTO penstock.outbox_attempt (
        attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at, error_message,
        latency_ms, created_at, token)
    SELECT penstock.uuid_v7(), i.outbox_id, $2, $3, $4, $4, $5, 7, $4, $6
    FROM penstock.outbox_instruction AS i
    WHERE i.item_id = $1
"""


@dataclass(slots=True, kw_only=True)
class Scene:
    """An app with the outbox alone, a client that may do everything, and a clock.

    `outcomes` are what the handler returns, one after another, and then Done; `seen` is called
    while an attempt is in flight.
    """

    app: Penstock
    client: AsyncClient
    clock: FakeClock
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    seen: Callable[[], Awaitable[None]] | None = None

    async def send(self, instruction_id: str = "i-1", **more: Any) -> UUID:
        """Have an instruction accepted, and return its outbox_id."""
        return (await self.outbox.send(an_instruction(instruction_id, **more))).outbox_id

    @property
    def outbox(self) -> Outbox:
        return self.app.api(Outbox)

    async def post(self, instruction_id: str = "i-1", **more: Any) -> Response:
        """Send an instruction over REST."""
        return await self.client.post("/outbox/instructions", json=a_body(instruction_id, **more))

    async def run(self) -> list[Attempted]:
        """Run what is due now."""
        return await run_due(self.app, self.clock)

    async def run_after(self, **wait: float) -> list[Attempted]:
        """Advance the clock, and run what is due then."""
        self.clock.advance(timedelta(**wait))
        return await self.run()

    async def pending(self) -> list[Json]:
        """Return what waits, as the view shows it."""
        rows = await self.app.pool.fetch(
            "SELECT * FROM penstock.payment_outbox_pending ORDER BY participant_id, sequence_id"
        )
        return [dict(row.items()) for row in rows]

    async def attempts(self, outbox_id: UUID) -> list[Json]:
        """Return what was tried, as the view shows it."""
        rows = await self.app.pool.fetch(
            "SELECT * FROM penstock.payment_outbox_attempts WHERE outbox_id = $1"
            " ORDER BY created_at, state <> 'DISPATCHING'",
            outbox_id,
        )
        return [dict(row.items()) for row in rows]

    async def states(self, outbox_id: UUID) -> list[str]:
        """Return the states of what was tried."""
        return [row["state"] for row in await self.attempts(outbox_id)]

    async def state(self, outbox_id: UUID) -> str:
        """Return the state of an instruction, as REST shows it."""
        shown = await self.client.get(f"/outbox/instructions/{outbox_id}")
        return body_of(shown)["instruction"]["state"]

    async def add_event(self, outbox_id: UUID, state: str) -> None:
        """Write a later row of the archive, such as RETURNED."""
        await self.app.pool.execute(
            "INSERT INTO penstock.outbox_attempt"
            " (attempt_id, outbox_id, attempt_no, state, claimed_at, created_at)"
            " VALUES (penstock.uuid_v7(), $1, 1, $2, $3, $3)",
            outbox_id,
            state,
            self.clock.now() + timedelta(seconds=1),
        )

    async def numbers(self) -> list[tuple[str, int, int, int, int]]:
        """Return count, first, last and next number of each participant, in one statement."""
        rows = await self.app.pool.fetch(
            "SELECT participant_id, count(sequence_id), coalesce(min(sequence_id), 1),"
            " coalesce(max(sequence_id), 0), min(next_sequence_id)"
            " FROM penstock.participant_outbox_sequences"
            " LEFT JOIN penstock.outbox_instruction USING (participant_id)"
            " GROUP BY participant_id ORDER BY participant_id"
        )
        return [tuple(row) for row in rows]

    async def set_lane(self, **policy: Any) -> None:
        """Change the lane."""
        async with self.app.pool.acquire() as db:
            await set_lane(db, LANE, who="test", **policy)

    async def _handle(self, _item: Item[Any]) -> Outcome:
        if self.seen is not None:
            await self.seen()
        return self.outcomes.pop(0) if self.outcomes else Done()


def an_instruction(instruction_id: str = "i-1", **more: Any) -> NewInstruction:
    return NewInstruction(**a_body(instruction_id, **more))


def a_body(instruction_id: str = "i-1", **more: Any) -> Json:
    given: Json = {
        "instruction_id": instruction_id,
        "participant_id": "ada",
        "idempotency_key": "k-1",
        "rail_type": "simulator",
        "payload": a_payload(),
    }
    return given | more


def a_payload(amount: str = "12.50", **more: Any) -> Json:
    return {"amount": amount, "currency": "EUR", "destination": {"iban": IBAN}} | more


def body_of(response: Response, status: int = 200) -> Any:
    """Return the JSON of an answer that has to be a good one."""
    assert response.status_code == status, response.text
    return response.json()


@asynccontextmanager
async def opened_outbox(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """Open an app whose handler returns what the test says; its endings are archived."""
    scenes: list[Scene] = []

    async def handle(item: Item[Any]) -> Outcome:
        return await scenes[0]._handle(item)

    def build(resources: Resources) -> Runtime:
        runtime = composed.DOMAIN.build(resources)
        kinds = [
            replace(kind, handle=handle, preload=None, record=record) for kind in runtime.kinds
        ]
        return replace(runtime, kinds=kinds, services=())

    async def record(db: Connection, token: int, settled: Sequence[SettledAttempt]) -> None:
        for each in settled:
            if each.outcome in STATES:
                await db.execute(
                    RECORD, each.item_id, each.attempt, STATES[each.outcome], clock.now(),
                    each.reason, token,
                )  # fmt: skip

    async with (
        Penstock(dsn=dsn, domains=[replace(composed.DOMAIN, build=build)]) as app,
        called(app, create_app(app)) as callers,
    ):
        scenes.append(Scene(app=app, client=callers.admin, clock=clock))
        yield scenes[0]
