"""Run the demo: schedule payments, let workers execute them, count what arrives where it ends."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, TaskID

from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.cli.demo.figures import Counted, Figures, Wanted, summarise
from penstock.cli.demo.prepare import limit_of, prepare
from penstock.cli.demo.receivers import receiving_events, receiving_mails
from penstock.cli.demo.tally import Tally
from penstock.cli.demo.workers import TEMPORAL_WORKER, WORKER, DemoWorkers, working
from penstock.compose.domains import BUILT_IN
from penstock.domains.outbox.rails.registry import SIMULATOR, list_rails
from penstock.domains.outbox.rails.simulator.ledger import Ledger
from penstock.domains.outbox.rails.simulator.service import LEDGER, SimulatorService
from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings
from penstock.domains.payments.payment import NewPayment, Notify, Party, Scheduled
from penstock.domains.payments.schedule import Payments
from penstock.postgres.embedded import embedded_server
from penstock.postgres.statement import statement

if TYPE_CHECKING:
    from penstock.cli.demo.temporal import Temporal

COUNT_EXECUTED = statement(__package__, "count_executed.sql")
LIST_INSTANTS = statement(__package__, "list_instants.sql")
IS_IDLE = statement(__package__, "is_idle.sql")

STEP_PAYMENTS = 1_000  # Scheduled in one transaction.
AHEAD = timedelta(seconds=2)  # At least, from the first scheduled payment to the due instant.
SLOWER = 1.3  # Times the first measured step: later ones take longer.
PARTICIPANTS = 1_000  # Each has its own order: few wait for a payment that a killed worker held.
MAIL_EVERY = 10  # Two mails about each payment would take as long as all the rest.
WORKERS_WITH_KILLS = 2  # So that one goes on. One alone is faster: it claims larger batches.
LOOK_INTERVAL = timedelta(milliseconds=500)
STALL_MAX = timedelta(seconds=90)  # Without any progress for so long, what is missing is lost.
LEDGER_PAGE = 10_000

DEBTOR = Party(name="Ada Example", iban="DE89370400440532013000")
CREDITOR = Party(name="Bank of Paris", iban="FR1420041010050500013M02606", bic="PSSTFRPPXXX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A demo that was run: its figures, and instants in seconds since the payments were due."""

    figures: Figures
    planned: list[float]
    executed: list[float]
    killed: list[float]


@dataclass(slots=True, kw_only=True)
class Counts:
    """What has arrived so far, at each station of the way."""

    scheduled: list[str] = field(default_factory=list[str])
    executed: int = 0
    paid: Tally = field(default_factory=Tally)
    events: Tally = field(default_factory=Tally)
    mails: Tally = field(default_factory=Tally)
    entries_read: int = 0

    @property
    def now(self) -> Mapping[str, int]:
        """Return the counts by the name of their station."""
        return {
            "scheduled": len(self.scheduled),
            "executed": self.executed,
            "paid": self.paid.distinct,
            "events": self.events.distinct,
            "mails": self.mails.distinct,
        }


async def run_flow(
    *, payments: int, rate: int, kills: bool, on_temporal: bool, progress: Progress
) -> Flow:
    """Run the whole flow on a temporary database, and summarise what arrived."""
    counts = Counts()
    wanted = Wanted(
        payments=payments,
        events=payments,
        mails=-(-payments // MAIL_EVERY),
        rate=rate,
        limit=limit_of(rate),
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        server = await stack.enter_async_context(embedded_server(folder))
        app = Penstock(server.dsn, data_dir=folder, domains=BUILT_IN)
        await stack.enter_async_context(app)
        await stack.enter_async_context(_simulating(app))
        events_url = await stack.enter_async_context(receiving_events(counts.events))
        smtp_port = await stack.enter_async_context(receiving_mails(counts.mails))
        async with app.pool.acquire() as db:
            await prepare(db, folder, rate=rate, events_url=events_url, smtp_port=smtp_port)
        temporal = await _serve_temporal(stack, app, folder) if on_temporal else None
        commands = [WORKER] if temporal is None else [WORKER, TEMPORAL_WORKER]
        workers = await stack.enter_async_context(
            working(
                folder,
                commands * (WORKERS_WITH_KILLS if kills else 1),
                variables={} if temporal is None else temporal.variables,
            )
        )
        watch = _Watch(app=app, counts=counts, wanted=wanted, progress=progress, folder=folder)
        due_at = datetime.now(UTC) + AHEAD + await watch.estimate()
        await watch.schedule(due_at)
        await watch.until_over(due_at, workers, kills=kills)
        runs = None if temporal is None else await temporal.tally_runs(payments)
        rows = await app.pool.fetch(LIST_INSTANTS)
    begin = due_at.timestamp()
    executed = sorted(row["executed"] - begin for row in rows if row["executed"] is not None)
    counted = Counted(
        scheduled=counts.scheduled,
        executed=counts.executed,
        paid=counts.paid,
        events=counts.events,
        mails=counts.mails,
        workers_killed=len(workers.killed_at),
        runs=runs,
    )
    return Flow(
        figures=summarise(counted, wanted, instants=executed),
        planned=sorted(row["planned"] - begin for row in rows if row["planned"] is not None),
        executed=executed,
        killed=[each - begin for each in workers.killed_at],
    )


async def _serve_temporal(stack: AsyncExitStack, app: Penstock, folder: Path) -> "Temporal":
    """Run a server of Temporal until the stack is closed, and execute payments on it."""
    from penstock.cli.demo.temporal import serving, use_temporal  # noqa: PLC0415  An extra.

    temporal = await stack.enter_async_context(serving(folder))
    async with app.pool.acquire() as db:
        await use_temporal(db)
    return temporal


@asynccontextmanager
async def _simulating(app: Penstock) -> AsyncGenerator[None]:
    """Serve the rail in this process, which is not killed; yield once payments can be sent."""
    service = SimulatorService(
        resources=app.resources, chosen=SimulatorSettings(outbox_simulator=True)
    )
    async with alongside(service.run(asyncio.Event())):
        await _until_served(app)
        yield


async def _until_served(app: Penstock) -> None:
    while True:
        if SIMULATOR in {each.rail_type for each in await list_rails(app.pool)}:
            return
        await asyncio.sleep(LOOK_INTERVAL.total_seconds())


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Schedules the payments, and looks at each station until all have arrived."""

    app: Penstock
    counts: Counts
    wanted: Wanted
    progress: Progress
    folder: Path
    _tasks: dict[str, TaskID] = field(init=False)
    _moved_at: float = 0.0

    def __post_init__(self) -> None:
        totals = dict.fromkeys(("scheduled", "executed", "paid"), self.wanted.payments)
        totals |= {"events": self.wanted.events, "mails": self.wanted.mails}
        self._tasks = {
            name: self.progress.add_task(name, total=total) for name, total in totals.items()
        }

    async def estimate(self) -> timedelta:
        """Return how long it takes to schedule all payments: one step is tried and rolled back."""
        count = min(self.wanted.payments, STEP_PAYMENTS)
        due_at = datetime.now(UTC) + AHEAD
        payments = [_payment(each, due_at) for each in range(count)]
        began_at = time.monotonic()
        async with self.app.pool.acquire() as db:
            trial = db.transaction()
            await trial.start()
            try:
                await self.app.api(Payments).schedule_many(payments, connection=db)
            finally:
                await trial.rollback()
        seconds = time.monotonic() - began_at
        return timedelta(seconds=seconds * SLOWER * self.wanted.payments / count)

    async def schedule(self, due_at: datetime) -> None:
        """Schedule all payments for one instant, as anybody would."""
        api = self.app.api(Payments)
        for first in range(0, self.wanted.payments, STEP_PAYMENTS):
            numbers = range(first, min(self.wanted.payments, first + STEP_PAYMENTS))
            answers = await api.schedule_many([_payment(each, due_at) for each in numbers])
            self.counts.scheduled += [
                each.payment_id for each in answers if isinstance(each, Scheduled)
            ]
            self._show()

    async def until_over(self, due_at: datetime, workers: DemoWorkers, *, kills: bool) -> None:
        """Return once everything has arrived, or nothing moves any more."""
        self._moved_at = max(time.time(), due_at.timestamp())
        async with AsyncExitStack() as stack:
            if kills:
                await _sleep_until(due_at)
                await stack.enter_async_context(alongside(workers.kill_forever()))
            while not (self._has_arrived() and (workers.killed_at or not kills)):
                if self._is_stalled():
                    return
                await self._look()
        # What a killed worker held comes back once more; it must not be paid again.
        while not (await self.app.pool.fetchval(IS_IDLE) or self._is_stalled()):
            await self._look()
        await self._look()

    async def _look(self) -> None:
        before = self.counts.now
        await asyncio.sleep(LOOK_INTERVAL.total_seconds())
        self.counts.executed = await self.app.pool.fetchval(COUNT_EXECUTED)
        await asyncio.to_thread(self._read_ledger)
        if self.counts.now != before:
            self._moved_at = time.time()
        self._show()

    def _read_ledger(self) -> None:
        """Count the bookings since the last look, in the file of the rail itself."""
        counts = self.counts
        ledger = Ledger(self.folder / LEDGER)
        try:
            while entries := ledger.list(after=counts.entries_read, limit=LEDGER_PAGE):
                counts.entries_read = entries[-1].payment_no
                for each in entries:
                    if each.is_booked:
                        counts.paid.note(each.instruction_id)
        finally:
            ledger.close()

    def _show(self) -> None:
        for name, count in self.counts.now.items():
            self.progress.update(self._tasks[name], completed=count)

    def _has_arrived(self) -> bool:
        counts, wanted = self.counts.now, self.wanted
        return (
            min(counts["executed"], counts["paid"]) >= wanted.payments
            and counts["events"] >= wanted.events
            and counts["mails"] >= wanted.mails
        )

    def _is_stalled(self) -> bool:
        return time.time() - self._moved_at > STALL_MAX.total_seconds()


def _payment(number: int, due_at: datetime) -> NewPayment:
    return NewPayment(
        payment_id=f"demo-{number}",
        amount=f"{1 + number % 10_000}.{number % 100:02}",
        currency="EUR",
        debtor=DEBTOR,
        creditor=CREDITOR,
        participant_id=f"participant-{number % PARTICIPANTS}",
        rail_type=SIMULATOR,
        execute_at=due_at,
        notify=Notify(event=True, mail="ada@example.org" if number % MAIL_EVERY == 0 else None),
    )


async def _sleep_until(instant: datetime) -> None:
    await asyncio.sleep(max(0.0, instant.timestamp() - time.time()))
