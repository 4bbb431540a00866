"""Workers of the outbox that die or stop at each labelled point: the ledger of the rail decides."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import LiteralString
from uuid import UUID

import pytest

from penstock.base.aio import alongside
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.kernel.lane import create_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Pool
from tests.domains.outbox.sending.ledger import Ledger, keeping
from tests.domains.outbox.sending.scene import accept
from tests.fault.processes import Child, ForkServer
from tests.fault.waiting import pause, until

SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "16"))
LEASE = timedelta(seconds=2)
ATTEMPTS_MAX = 100  # A head that is lost or busy again and again must not fail for good.
PARTICIPANTS = 4
ROUND = 8  # Instructions for each point at which a worker dies.
PATIENCE = 120.0

IN_THE_HANDLER = ["before_fence", "after_fence", "before_send", "after_send"]
IN_THE_ARCHIVE = ["before_record", "after_record"]
IN_THE_RECONCILER = ["before_unknown", "before_resolve", "before_resolve_commit", "after_resolve"]
QUERIES = ["before_query", "before_reconcile_query"]

# One query for all instructions, because it is asked twenty times a second.
STATES: LiteralString = """
WITH sent AS (
    SELECT outbox_id, item_id FROM penstock.outbox_instruction WHERE outbox_id = ANY ($1)
)
SELECT sent.outbox_id, located.state
FROM sent JOIN penstock.locate(ARRAY(SELECT item_id FROM sent)) AS located ON located.id = item_id
"""


@dataclass(slots=True, kw_only=True)
class Scene:
    """One database, one ledger, and workers that die."""

    dsn: str
    pool: Pool
    ledger: Ledger
    promise: str
    forks: ForkServer
    folder: Path
    sent: dict[str, UUID] = field(default_factory=dict[str, UUID])
    workers: list[Child] = field(default_factory=list[Child])

    async def send(self, count: int) -> None:
        """Accept instructions of several participants; the name has the number in its order."""
        async with self.pool.acquire() as db:
            for _ in range(count):
                number = len(self.sent)
                # Participants of their own for each round: those before may be held.
                participant = f"p{number // ROUND}.{number % PARTICIPANTS}"
                name = f"{participant}-{number % ROUND}"
                self.sent[name] = await accept(db, name, participant=participant)

    async def start(self, label: str = "never", how: str = "kill") -> Child:
        worker = await self.forks.start(
            "tests.fault.outbox_worker",
            *(self.dsn, str(self.ledger.port), self.promise, how, label),
            log=self.folder / "workers.log",
            environment={
                **os.environ,
                "PENSTOCK_POOL_SIZE_MIN": "1",
                "PENSTOCK_POOL_SIZE_MAX": "6",
            },
        )
        self.workers.append(worker)
        return worker

    async def are_all_done(self) -> bool:
        return not await self.unfinished()

    async def unfinished(self) -> dict[str, str]:
        """Return where the instructions are that are not done."""
        rows = await self.pool.fetch(STATES, list(self.sent.values()))
        states = {row["outbox_id"]: row["state"] for row in rows}
        return {
            name: states.get(each, "nowhere")
            for name, each in self.sent.items()
            if states.get(each) != "done"
        }

    async def wait_until_all_are_done(self) -> None:
        try:
            await until(self.are_all_done, within=2 * PATIENCE)
        except TimeoutError as late:
            raise AssertionError(await self.unfinished()) from late

    async def states(self, name: str) -> list[str]:
        rows = await self.pool.fetch(
            """
            SELECT state FROM penstock.outbox_attempt WHERE outbox_id = $1
            ORDER BY created_at, attempt_id
            """,
            self.sent[name],
        )
        return [row["state"] for row in rows]

    async def assert_paid_once_in_order(self) -> None:
        assert self.ledger.paid_twice == []
        assert set(self.ledger.bookings) == self.sent.keys(), "an instruction was lost"
        for participant in {name.partition("-")[0] for name in self.sent}:
            numbers = [
                int(name.partition("-")[2])
                for name in self.ledger.bookings
                if name.startswith(f"{participant}-")
            ]
            assert numbers == sorted(numbers), f"an instruction of {participant} has overtaken"
        for name in self.sent:
            states = await self.states(name)
            assert states.count("DISPATCHED") == 1, (name, states)


@asynccontextmanager
async def running(
    dsn: str, db: Pool, *, forks: ForkServer, folder: Path, promise: str
) -> AsyncGenerator[Scene]:
    async with db.acquire() as connection:
        await create_lane(
            connection,
            LANE,
            who="test",
            owner=OWNER,
            guards=GUARDS,
            **(
                POLICY
                | {
                    "lease": LEASE,
                    "backoff_base": timedelta(milliseconds=50),
                    "max_attempts": ATTEMPTS_MAX,
                }
            ),
        )
    ledger = Ledger(recognises_keys=promise == "key")
    async with keeping(ledger), alongside(_sweep_often(db)):
        scene = Scene(dsn=dsn, pool=db, ledger=ledger, promise=promise, forks=forks, folder=folder)
        try:
            yield scene
        finally:
            for worker in scene.workers:
                await worker.end()


async def _sweep_often(db: Pool) -> None:
    while True:
        await sweep(db, meter=Meter(), log=get_logger())
        await pause(0.3)


@pytest.mark.timeout(400)
@pytest.mark.covers("E28", "E73")
@pytest.mark.parametrize("promise", ["query", "key"])
async def test_nothing_is_paid_twice_or_lost_wherever_a_worker_dies(
    dsn: str, db: Pool, *, forks: ForkServer, tmp_path: Path, promise: str
) -> None:
    """A rail that books every call and answers queries, and one that only recognises keys."""
    chance = random.Random(SEED)
    labels = [*IN_THE_HANDLER, *IN_THE_ARCHIVE, *IN_THE_RECONCILER]
    if promise == "query":
        labels += QUERIES
    async with running(dsn, db, forks=forks, folder=tmp_path, promise=promise) as scene:
        for label in labels:
            scene.ledger.orders += chance.choices(["pay", "lose", "BUSY"], k=ROUND // 2)
            scene.ledger.orders += ["lose", "BUSY"]
            await scene.send(ROUND)
            worker = await scene.start(label)
            async with asyncio.timeout(PATIENCE):
                assert await worker.wait() == -signal.SIGKILL, label
        await scene.start()
        await scene.wait_until_all_are_done()

        await scene.assert_paid_once_in_order()


@pytest.mark.timeout(300)
@pytest.mark.covers("E74")
@pytest.mark.parametrize(
    ("label", "promise"),
    [("before_fence", "nothing"), ("before_fence", "query"), ("before_send", "query")],
)
async def test_a_worker_that_was_stopped_past_its_lease_does_not_call(
    dsn: str, db: Pool, *, forks: ForkServer, tmp_path: Path, label: str, promise: str
) -> None:
    """It says late that it made no call; a rail that promises nothing needs no other proof."""
    async with running(dsn, db, forks=forks, folder=tmp_path, promise=promise) as scene:
        await scene.send(1)
        stopped = await scene.start(label, how="stop")
        await until(partial(_is_stopped, stopped), within=PATIENCE)
        await until(partial(_is_lost, db), within=PATIENCE)
        assert scene.ledger.bookings == []
        other = await scene.start()

        if promise == "query":
            await until(scene.are_all_done, within=PATIENCE)
        stopped.send(signal.SIGCONT)
        await until(scene.are_all_done, within=PATIENCE)
        await until(partial(_has_late_result, db), within=PATIENCE)

        assert other.is_running
        await scene.assert_paid_once_in_order()


async def _is_stopped(worker: Child) -> bool:
    return worker.is_stopped


async def _is_lost(db: Pool) -> bool:
    return await db.fetchval("SELECT count(*) > 0 FROM penstock.held WHERE reason = 'lost'")


async def _has_late_result(db: Pool) -> bool:
    return await db.fetchval(
        "SELECT count(*) > 0 FROM penstock.late_result WHERE outcome = 'snooze'"
    )
