"""Our side of the bars of the outbox: its lane behind the bench's verbs, with a rail that counts.

All else is as people run it: the rail has a row, controls and calls are checked, endings are
archived and sealed. On request the heads of some participants are poison.
"""

import asyncio
import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from bench.environment import ROOT, Launch
from bench.ours import drain_ordered
from bench.peers.protocol import Answer, Handle, Mode, Place, say, serve
from penstock import Penstock
from penstock.base import log
from penstock.contract import Resources, Runtime
from penstock.domains.outbox.audit.seal import seal
from penstock.domains.outbox.audit.verify import verify
from penstock.domains.outbox.domain import OUTBOX
from penstock.domains.outbox.enqueue import NewInstruction, Outbox
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import (
    NoAnswer,
    QueryResult,
    RailAnswer,
    RailProperties,
    SendResult,
)
from penstock.domains.outbox.rails.registry import CachedRails, RailRow, put_rail
from penstock.domains.outbox.rails.simulator.service import SimulatorService
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.domains.outbox.runtime import build
from penstock.postgres.pool import Queries

RAIL: Final = "noop"
CODE_SET: Final = "simulator"
SEALER: Final = "outbox.seal"
PROGRESS_SECONDS: Final = 0.5
WHO: Final = "bench"

LAUNCH: Final = Launch(
    command=(sys.executable, "-m", "bench.paying"),
    variables={"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
)

# Items behind a poison head stay parked.
IS_SETTLED: Final = """
SELECT NOT EXISTS (SELECT FROM penstock.ready WHERE due_at <= now())
    AND NOT EXISTS (SELECT FROM penstock.lease)
"""
SEALED: Final = """
SELECT coalesce((SELECT sum(row_count) FROM penstock.outbox_seal), 0)::float8
    / greatest(1, (SELECT count(*) FROM penstock.outbox_attempt))
"""
# As its owner could: triggers are off in such a session.
TAMPER: Final = """
UPDATE penstock.outbox_attempt SET rail_code = 'X'
WHERE attempt_id = (SELECT attempt_id FROM penstock.outbox_attempt OFFSET $1 LIMIT 1)
"""

PROPERTIES: Final = RailProperties(can_query=True)
REFUSED: Final = RailAnswer(code="REJECTED")
BUSY: Final = RailAnswer(code="BUSY")
SILENT: Final = NoAnswer("no answer")
POISON: Final[tuple[RailAnswer | NoAnswer, ...]] = (REFUSED, BUSY, SILENT)


@dataclass(slots=True)
class CountingRail:
    """Pays at once. Of every `poison_every`-th participant, the first instruction is poison."""

    participants: int = 1
    poison_every: int | None = None
    handle: Handle | None = None

    @property
    def properties(self) -> RailProperties:
        """It has to be asked about what was tried before, as most rails."""
        return PROPERTIES

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
        """Count the instruction, or refuse it."""
        del timeout
        number = int(instruction.instruction_id)
        if number < self.participants and is_poisoned(number, self.poison_every):
            return POISON[number % len(POISON)]
        assert self.handle is not None
        await self.handle(number)
        return RailAnswer(code="PAID", reference=instruction.instruction_id)

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult:
        """Answer as before: only poison is tried again."""
        del timeout
        return POISON[int(instruction.instruction_id) % len(POISON)]


def is_poisoned(participant: int, every: int | None) -> bool:
    """Return whether the head of a participant is poison."""
    return every is not None and participant % every == 0


class OutboxLane:
    """The verbs of a `Queue` (see `bench.peers.protocol`) over the outbox."""

    chunk = 5_000

    async def setup(self, place: Place, *, install: bool) -> None:
        """Open the app, which migrates; create the rail."""
        del install
        log.configure("error")  # A line for each poison head is not what is measured.
        self.rail = CountingRail()
        self.seals = True
        self._app = Penstock(place.dsn, domains=[replace(OUTBOX, build=self._build)])
        await self._app.open()
        row = RailRow(rail_type=RAIL, adapter=RAIL, code_set=CODE_SET, concurrency_max=1_000)
        async with self._app.pool.acquire() as db:
            await put_rail(db, row, vault=self._app.resources.vault, who=WHO)

    def _build(self, resources: Resources) -> Runtime:
        simulator = SimulatorService(
            resources=resources, chosen=SimulatorSettings(outbox_simulator=False)
        )
        rails = CachedRails(
            resources=resources, adapters={RAIL: self._make_rail}, may_simulate=_never
        )
        return build(resources, known_rails=rails, simulator=simulator, listeners=())

    def _make_rail(self, *_: object) -> CountingRail:
        return self.rail

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:
        """Accept instructions, each participant's in the order of their numbers."""
        del keyed  # There is always a key.
        await self._app.api(Outbox).send_many(
            [self._instruction(number) for number in range(first, first + count)], who=WHO
        )

    def _instruction(self, number: int) -> NewInstruction:
        return NewInstruction(
            instruction_id=str(number),
            participant_id=f"participant-{number % self.rail.participants}",
            idempotency_key=f"key-{number}",
            rail_type=RAIL,
            payload={
                "amount": "12.50",
                "currency": "EUR",
                "destination": {"iban": "DE02120300000000202051", "name": "Bench"},
            },
        )

    async def submit(self, number: int) -> float:
        """Accept one."""
        committed_at = time.perf_counter()
        await self.insert(number, 1, keyed=True)
        return committed_at

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:
        """Run one worker with the lane's own policy, and the services of the outbox."""
        del mode
        self.rail.handle = handle
        if not self.seals:
            self._app.services = tuple(each for each in self._app.services if each.name != SEALER)
        await self._app.run_worker(stop)

    async def is_settled(self) -> bool:
        """Nothing due, nothing leased."""
        return bool(await self._app.pool.fetchval(IS_SETTLED))

    async def sealed_share(self) -> float:
        """Return the share of archive rows that is sealed."""
        return float(await self._app.pool.fetchval(SEALED))

    async def find_tampered(self, rows: int) -> Answer:
        """Seal what is left, change one row of so many, and time how long it takes to find it."""
        while await seal(self._app.pool):
            pass
        async with self._app.pool.acquire() as db:
            await db.execute("SET session_replication_role = replica")
            await db.execute(TAMPER, rows * 3 // 4)
            began_at = time.perf_counter()
            found = await verify(db)
            seconds = time.perf_counter() - began_at
        return {"rows": found.rows, "seconds": seconds, "faults": len(found.faults)}


async def _never(_db: Queries) -> bool:
    return False


def serve_outbox(queue: OutboxLane) -> None:
    """Serve the common verbs and those of the outbox."""

    async def fill(*, first: int, items: int, participants: int) -> Answer:
        queue.rail.participants = participants
        started = shown = time.perf_counter()
        for offset in range(first, first + items, queue.chunk):
            await queue.insert(offset, min(queue.chunk, first + items - offset), keyed=True)
            if time.perf_counter() - shown > PROGRESS_SECONDS:
                shown = time.perf_counter()
                say({"progress": offset + queue.chunk - first})
        return {"items": items, "seconds": time.perf_counter() - started}

    async def drain(*, keys: int, poison_every: int | None, seals: bool, **asked: object) -> Answer:
        queue.rail.participants, queue.rail.poison_every = keys, poison_every
        queue.seals = seals
        answer = await drain_ordered(queue, keys=keys, **asked)  # pyright: ignore[reportArgumentType]
        return {**answer, "sealed_share": await queue.sealed_share()}

    serve(
        queue,
        more={
            "fill_outbox": fill,
            "drain_outbox": drain,
            "find_tampered": queue.find_tampered,
        },
    )


if __name__ == "__main__":
    serve_outbox(OutboxLane())
