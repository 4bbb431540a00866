"""Workers of payments that die at each point: the ledger of the simulated rail decides."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.base.aio import alongside
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.compose import outbox, payments, webhooks
from penstock.domains.outbox.lanes import LANE as OUTBOX_LANE
from penstock.domains.outbox.lanes import OWNER as OUTBOX
from penstock.domains.outbox.rails.registry import SIMULATOR, RailRow, put_rail
from penstock.domains.outbox.rails.simulator.server import Simulator
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Scheduled
from penstock.domains.payments.schedule import Payments
from penstock.kernel.lane import set_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.embedded import embedded_server
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool, database_away
from tests.domains.outbox.rails.rail_scene import simulating
from tests.domains.payments.scene import a_payment
from tests.fault.payments_worker import LABELS
from tests.fault.processes import Child, ForkServer
from tests.fault.waiting import pause, until

SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "17"))
LEASE = timedelta(seconds=2)
QUICK: dict[str, Any] = {"lease": LEASE, "backoff_base": timedelta(milliseconds=50)}
AT_ONCE: dict[str, Any] = {"dispatch_interval": timedelta(0), "jitter_window": timedelta(0)}
PARTICIPANTS = 4
ROUND = 20  # Payments for each point at which a worker dies.
PATIENCE = 120.0


@dataclass(slots=True, kw_only=True)
class Scene:
    """One database, one simulator that books every request, and workers that die."""

    dsn: str
    app: Penstock
    simulator: Simulator
    forks: ForkServer
    folder: Path
    scheduled: list[str] = field(default_factory=list[str])
    workers: list[Child] = field(default_factory=list[Child])

    async def schedule(self, count: int) -> None:
        """Schedule payments that are due at once."""
        numbers = range(len(self.scheduled), len(self.scheduled) + count)
        new = [
            a_payment(
                f"p-{number}",
                execute_at=None,
                participant_id=f"participant-{number % PARTICIPANTS}",
                notify={"event": True},
            )
            for number in numbers
        ]
        answers = await self.app.api(Payments).schedule_many(new)
        assert all(isinstance(each, Scheduled) for each in answers), answers
        self.scheduled += [each.payment_id for each in new]

    async def start(self, label: str = "never") -> Child:
        worker = await self.forks.start(
            *("tests.fault.payments_worker", self.dsn, label),
            log=self.folder / "workers.log",
            environment={
                **os.environ,
                "PENSTOCK_POOL_SIZE_MIN": "1",
                "PENSTOCK_POOL_SIZE_MAX": "6",
                "PENSTOCK_OUTBOX_SIMULATOR": "true",
            },
        )
        self.workers.append(worker)
        return worker

    async def are_all_settled(self) -> bool:
        """Return whether no payment is left to be paid; not while the database is away."""
        try:
            with database_away():
                open_ones = await self.app.pool.fetchval(
                    "SELECT count(*) FROM penstock.payment WHERE status <> 'SETTLED'"
                )
        except DatabaseAway:
            return False
        return open_ones == 0

    async def assert_paid_once(self) -> None:
        """Compare the payments with the ledger, and with what receivers are told."""
        totals = self.simulator.ledger.totals()
        assert totals.repeated == {}
        booked = self.simulator.ledger.list(limit=10_000)
        assert {each.instruction_id for each in booked} == set(self.scheduled)
        assert totals.bookings == len(self.scheduled)
        rows = await self.app.pool.fetch(
            "SELECT data::json ->> 'payment_id' AS payment_id FROM penstock.webhook_event"
            " WHERE type = 'payment.settled'"
        )
        told = Counter(row["payment_id"] for row in rows)
        assert told == dict.fromkeys(self.scheduled, 1)


@asynccontextmanager
async def running(dsn: str, folder: Path, forks: ForkServer) -> AsyncGenerator[Scene]:
    domains = [webhooks.DOMAIN, outbox.DOMAIN, payments.DOMAIN]
    async with (
        simulating(folder, is_idempotent=False) as (simulator, url),
        Penstock(dsn, domains=domains) as app,
    ):
        async with app.pool.acquire() as db:
            rail = RailRow(
                rail_type=SIMULATOR, adapter=SIMULATOR, code_set=SIMULATOR, config={"url": url}
            )
            await put_rail(db, rail, vault=app.resources.vault, who="test")
            await set_lane(db, OUTBOX_LANE, who="test", owner=OUTBOX, **QUICK)
            # These tests kill often: no payment may be dead by lost attempts.
            await set_lane(db, LANE, who="test", **QUICK, **AT_ONCE, max_attempts=50)
        async with alongside(_sweep_often(app.pool)):
            scene = Scene(dsn=dsn, app=app, simulator=simulator, forks=forks, folder=folder)
            try:
                yield scene
            finally:
                for worker in scene.workers:
                    await worker.end()


async def _sweep_often(db: Pool) -> None:
    while True:
        with suppress(DatabaseAway), database_away():
            await sweep(db, meter=Meter(), log=get_logger())
        await pause(0.3)


@pytest.mark.timeout(400)
@pytest.mark.covers("A30", "A37", "A42", "A87")
async def test_each_payment_is_paid_once_wherever_a_worker_dies(
    dsn: str, *, forks: ForkServer, tmp_path: Path
) -> None:
    """The rail books every request that it gets, whatever its key: nothing but us prevents two."""
    async with running(dsn, tmp_path, forks) as scene:
        for label in LABELS:
            await scene.schedule(ROUND)
            worker = await scene.start(label)
            async with asyncio.timeout(PATIENCE):
                assert await worker.wait() == -signal.SIGKILL, label
        await scene.start()
        await until(scene.are_all_settled, within=2 * PATIENCE)

        await scene.assert_paid_once()


@pytest.mark.timeout(400)
async def test_each_payment_is_paid_once_while_workers_die_at_any_moment(
    dsn: str, *, forks: ForkServer, tmp_path: Path
) -> None:
    """Two workers at a time; each is killed after so many more payments were booked."""
    chance = random.Random(SEED)
    async with running(dsn, tmp_path, forks) as scene:
        await scene.schedule(10 * ROUND)
        for _ in range(4):
            workers = [await scene.start(), await scene.start()]
            goal = min(scene.simulator.ledger.totals().bookings + chance.randint(5, 30), 10 * ROUND)
            await until(lambda goal=goal: _has_booked(scene, goal), within=PATIENCE)
            for worker in workers:
                worker.send(signal.SIGKILL)
        await scene.start()
        await until(scene.are_all_settled, within=2 * PATIENCE)

        await scene.assert_paid_once()


@pytest.mark.timeout(400)
@pytest.mark.covers("A45")
async def test_each_payment_is_paid_once_although_postgres_is_killed(
    forks: ForkServer, tmp_path: Path
) -> None:
    """What was not committed is repeated, and what was committed is not: workers go on alone."""
    async with (
        embedded_server(tmp_path / "data") as server,
        running(server.dsn, tmp_path, forks) as scene,
    ):
        await scene.schedule(8 * ROUND)
        await scene.start()
        await scene.start()
        for goal in (ROUND, 3 * ROUND, 5 * ROUND):
            await until(lambda goal=goal: _has_booked(scene, goal), within=PATIENCE)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)

        await until(scene.are_all_settled, within=2 * PATIENCE)

        await scene.assert_paid_once()


async def _has_booked(scene: Scene, count: int) -> bool:
    return scene.simulator.ledger.totals().bookings >= count
