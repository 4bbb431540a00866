"""One run: the plan of a seed against real workers, a real PostgreSQL and the simulator."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import LiteralString, TypeVar
from uuid import UUID

import httpx

from penstock.base.aio import alongside, finish
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.vault import Vault
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control import operate
from penstock.domains.outbox.enqueue import AcceptedInstruction, NewInstruction, Outbox
from penstock.domains.outbox.errors import InstructionConflict
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.rails.registry import SIMULATOR, RailRow, put_rail, read_scheme
from penstock.domains.outbox.rails.simulator.entry import Entry
from penstock.domains.outbox.reconcile.resolve import Decision, Resolver
from penstock.kernel.errors import StateConflict
from penstock.kernel.lane import create_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.cluster import START_TIMEOUT, halt, is_alive, launch
from penstock.postgres.embedded import Server, running
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, connect, database_away, open_pool
from tests.database import OWNERS, copy_database, database_dsn, run_sql
from tests.fault.outbox_seeds.children import SimulatorArguments, WorkerArguments
from tests.fault.outbox_seeds.plan import (
    FINAL_SECONDS,
    TIMEOUT_SECONDS,
    Fault,
    Life,
    Plan,
    Planned,
    describe,
    make_plan,
)
from tests.fault.outbox_seeds.processes import Child, ForkServer
from tests.fault.outbox_seeds.proof import (
    find_unsealed,
    find_wrongs,
    read_ledger,
    read_standings,
    write_traces,
)
from tests.fault.record import read_lines
from tests.fault.waiting import pause, until
from tests.ports import free_port

T = TypeVar("T")

TEMPLATE = "fault_template"
RAIL = "bank"
WHO = "operator"
LEASE = timedelta(seconds=1)  # The shortest that a lane may have.
MAX_ATTEMPTS = 20  # Lost attempts count.
SWEEP_SECONDS = 0.25
PATIENCE = 90.0  # For what takes a few seconds on an idle machine.
DECISIONS_MAX = 8  # Rounds of a person's decisions.
# As for the other tests: only a crash of the machine would lose anything, and copies are fast.
OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "max_wal_size": "128MB",
}
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 * 2**30

# Work that goes on by itself: what is ready or in flight, and doubts that no person has to decide.
# A dead head blocks its participant.
MOVING: LiteralString = """
SELECT EXISTS (SELECT FROM penstock.ready) OR EXISTS (SELECT FROM penstock.lease)
    OR EXISTS (SELECT FROM penstock.vacated_key)
    OR EXISTS (
        SELECT FROM penstock.held LEFT JOIN penstock.outbox_lookup AS k ON k.item_id = held.id
        WHERE k.left_at IS NULL OR k.attempt <> held.attempt
    )
"""
# Ask rails again at once, where the reconciler would wait for longer each time. What it decides is
# the same: when "not found" is final depends on the attempts alone.
HASTEN_LOOKUPS: LiteralString = """
UPDATE penstock.outbox_lookup SET due_at = now()
WHERE purpose = 'unknown' AND left_at IS NULL AND due_at > now() + interval '0.2 seconds'
"""


class RunFailed(Exception):
    """A promise was broken, or the run did not come to an end."""

    def __init__(self, plan: Plan, wrongs: Sequence[str], folder: Path) -> None:
        lines = "\n  ".join(wrongs)
        super().__init__(
            f"seed {plan.seed} failed; replay it with: make fault SEED={plan.seed}\n  {lines}\n"
            f"its plan, logs, ledger and rows are in {folder}\n{describe(plan)}"
        )
        self.seed = plan.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one run did, as counts."""

    seed: int
    mode: str
    seconds: float
    instructions: int
    bookings: int
    hits: Counter[tuple[str, ...]]
    states: Counter[str]
    flagged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where runs happen: one cluster with a template, and a fork server."""

    server: Server
    forks: ForkServer
    folder: Path


@asynccontextmanager
async def opened_site(forks: ForkServer) -> AsyncGenerator[Site]:
    """Run a cluster for many runs; each gets a fresh database."""
    has_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    place = MEMORY if has_memory else None
    with tempfile.TemporaryDirectory(prefix="penstock-fault-", dir=place) as name:
        folder = Path(name)
        with running(folder / "data", options=OPTIONS) as server:
            await _make_template(server.dsn)
            yield Site(server=server, forks=forks, folder=folder)


async def _make_template(dsn: str) -> None:
    await run_sql(dsn, f"CREATE DATABASE {TEMPLATE}")
    db = await connect(database_dsn(dsn, TEMPLATE))
    await migrate(db, OWNERS)
    policy = {
        "lease": LEASE,
        "max_attempts": MAX_ATTEMPTS,
        "backoff_base": timedelta(milliseconds=50),
    }
    await create_lane(db, LANE, who="test", owner=OWNER, guards=GUARDS, **(POLICY | policy))
    await db.close()


async def run_seed(site: Site, seed: int, *, keep_in: Path) -> RunReport:
    """Run the plan of a seed; raises RunFailed, and then keeps the folder of the run."""
    plan = make_plan(seed)
    folder = site.folder / f"seed-{seed}"
    folder.mkdir()
    started = monotonic()
    name = f"seed_{seed}"
    dsn = await persist(lambda: copy_database(site.server.dsn, TEMPLATE, name))
    pool = await open_pool(dsn, min_size=1, max_size=8)
    run = Run(site=site, plan=plan, dsn=dsn, pool=pool, folder=folder)
    try:
        wrongs = await run.carry_out()
        entries = read_ledger(run.ledger)
        if wrongs:
            (folder / "plan.txt").write_text(describe(plan), encoding="utf-8")
            await write_traces(pool, folder / "rows.txt", entries)
            kept = keep_in / folder.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            raise RunFailed(plan, wrongs, kept)
        standings = await read_standings(pool)
    finally:
        pool.terminate()
        async with asyncio.timeout(PATIENCE):  # Without a server, the failure itself is reported.
            await persist(
                lambda: run_sql(site.server.dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            )
        shutil.rmtree(folder, ignore_errors=True)
    return RunReport(
        seed=seed,
        mode=plan.mode,
        seconds=monotonic() - started,
        instructions=len(plan.instructions),
        bookings=sum(entry.is_booked for entry in entries),
        hits=run.hits,
        states=Counter(each.state for each in standings),
        flagged=run.flagged,
    )


@dataclass(slots=True, kw_only=True)
class Run:
    """The processes of one run, and what producers were told."""

    site: Site
    plan: Plan
    dsn: str
    pool: Pool
    folder: Path
    port: int = field(default_factory=free_port)
    accepted: dict[str, UUID] = field(default_factory=dict[str, UUID])
    wrongs: list[str] = field(default_factory=list[str])
    workers: list[Child] = field(default_factory=list[Child])
    simulator: Child | None = None
    hits: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    flagged: int = 0

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite3"

    async def carry_out(self) -> list[str]:
        """Run the plan to its end, and return every promise that is broken."""
        works = [self._live(lives) for lives in self.plan.workers]
        try:
            async with (
                asyncio.timeout(3 * PATIENCE),
                alongside(self._keep_simulator(), self._sweep_often(), *works),
            ):
                await self._put_rail()
                await asyncio.gather(
                    self._produce(), self._kill_simulator(), self._restart_postgres()
                )
                await self._settle_down()
                wrongs = await self._look()
                await self._decide_all()
                wrongs += await self._look()
        except TimeoutError:
            wrongs = ["the run did not come to an end"]
        finally:
            for child in (*self.workers, self.simulator):
                if child is not None:
                    await child.end()
            self.hits = Counter((*words,) for words in read_lines(self.folder / "record"))
        return [*dict.fromkeys([*self.wrongs, *wrongs, *await find_unsealed(self.pool)])]

    async def _look(self) -> list[str]:
        return await find_wrongs(
            self.pool, self.plan, accepted=self.accepted, entries=read_ledger(self.ledger)
        )

    # ------------------------------------------------------------------------------ producers

    async def _put_rail(self) -> None:
        mode = self.plan.mode
        config = {
            "url": f"http://127.0.0.1:{self.port}",
            "is_idempotent": mode in {"key", "both"},
            "can_query": mode in {"query", "both"},
            "not_found_is_final_after_seconds": FINAL_SECONDS,
        }
        rail = RailRow(
            rail_type=RAIL,
            adapter=SIMULATOR,
            config=config,
            code_set=SIMULATOR,
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
        )
        async with self.pool.acquire() as db:
            await put_rail(db, rail, vault=Vault(bytes(32)), who="test")

    async def _produce(self) -> None:
        for each in self.plan.instructions:
            await pause(each.wait_seconds)
            if each.crash is not None:
                await self._order_crash(each)
            answers = await asyncio.gather(*(self._send(each) for _ in range(each.senders)))
            self._check_answers(each, answers)
            if each.has_rival:
                await self._send_rival(each)
        for each in self.plan.instructions:
            if each.is_repeated:
                self._check_answers(each, [await self._send(each)])

    async def _order_crash(self, planned: Planned) -> None:
        """Have the simulator end when it gets this instruction, once."""
        order = {"instruction_id": planned.name, "crash": planned.crash}
        with suppress(httpx.TransportError):  # It may be down, and then this fault is left out.
            async with httpx.AsyncClient() as client:
                await client.post(f"http://127.0.0.1:{self.port}/orders", json=order)

    async def _send(self, planned: Planned, *, amount: str | None = None) -> AcceptedInstruction:
        """Send an instruction; without an answer, send it again."""
        payload = {
            "amount": amount or planned.amount,
            "currency": "EUR",
            "destination": {"iban": "x"},
        }
        if planned.simulate is not None:
            payload["simulate"] = planned.simulate
        new = NewInstruction(
            instruction_id=planned.name,
            participant_id=planned.participant,
            idempotency_key=f"key-{planned.name}",
            rail_type=RAIL,
            payload=payload,
        )
        return await persist(
            lambda: Outbox(pool=self.pool, scheme_of=partial(read_scheme, self.pool)).send(new)
        )

    async def _send_rival(self, planned: Planned) -> None:
        with suppress(InstructionConflict):
            await self._send(planned, amount="1000.01")
            self.wrongs.append(f"{planned.name} was accepted with another amount")

    def _check_answers(self, planned: Planned, answers: Sequence[AcceptedInstruction]) -> None:
        known = self.accepted.setdefault(planned.name, answers[0].outbox_id)
        if {each.outbox_id for each in answers} != {known}:
            self.wrongs.append(f"{planned.name} was accepted under several ids")

    # --------------------------------------------------------------------------------- faults

    async def _live(self, lives: Sequence[Life]) -> None:
        """Run the processes of a worker one after the other: each until its fault kills it."""
        for life in lives:
            worker = await self._start_worker(life)
            if life.fault is not None and life.fault.how == "stop":
                await self._continue_later(worker, life.fault)
            await worker.wait()
        self.wrongs.append("a worker without a fault has ended")
        await asyncio.Event().wait()

    async def _start_worker(self, life: Life) -> Child:
        fault = life.fault
        arguments = WorkerArguments(
            dsn=self.dsn, record=str(self.folder / "record"), skew_minutes=life.skew_minutes
        )
        if fault is not None:
            arguments.how, arguments.label, arguments.skip = fault.how, fault.label, fault.skip
        worker = await self.site.forks.start(arguments, log=self.folder / "workers.log")
        self.workers.append(worker)
        return worker

    async def _continue_later(self, worker: Child, fault: Fault) -> None:
        async def is_stopped() -> bool:
            return worker.is_stopped

        # Not every label is reached.
        with suppress(TimeoutError):
            await until(is_stopped, within=PATIENCE)
            await pause(fault.seconds)
            worker.send(signal.SIGCONT)

    async def _keep_simulator(self) -> None:
        """Run the simulator, and start it again on its ledger whenever it has ended."""
        arguments = SimulatorArguments(
            port=self.port,
            ledger=str(self.ledger),
            is_idempotent=self.plan.mode in {"key", "both"},
        )
        while True:
            log = self.folder / "simulator.log"
            self.simulator = await self.site.forks.start(arguments, log=log)
            await self.simulator.wait()
            await self.simulator.end()

    async def _kill_simulator(self) -> None:
        now = 0.0
        for at in self.plan.simulator_kills:
            await pause(at - now)
            now = at
            if self.simulator is not None:
                self.simulator.send(signal.SIGKILL)
                with (self.folder / "record").open("a", encoding="ascii") as record:
                    record.write("\nkill simulator;")

    async def _restart_postgres(self) -> None:
        if self.plan.postgres_restart is None:
            return
        await pause(self.plan.postgres_restart)
        server = self.site.server
        if self.plan.postgres_signal == "kill":
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            await until(self._is_postgres_dead, within=PATIENCE)
        else:
            await finish(asyncio.to_thread(halt, server.cluster), within=START_TIMEOUT)
        # A thread goes on after a cancellation, and would start a server that nothing stops.
        launching = asyncio.to_thread(launch, server.cluster, server.options)
        await finish(launching, within=START_TIMEOUT)
        with (self.folder / "record").open("a", encoding="ascii") as record:
            record.write(f"\n{self.plan.postgres_signal} postgres;")

    async def _is_postgres_dead(self) -> bool:
        return not is_alive(self.site.server.cluster)

    async def _sweep_often(self) -> None:
        """Sweep, and have rails asked again, more often than a worker does by itself."""
        while True:
            with suppress(DatabaseAway), database_away():
                await sweep(self.pool, meter=Meter(), log=get_logger())
                await self.pool.execute(HASTEN_LOOKUPS)
            await pause(SWEEP_SECONDS)

    # --------------------------------------------------------------------------------- the end

    async def _settle_down(self) -> None:
        """Wait until nothing goes on by itself; raises TimeoutError."""

        async def is_quiet() -> bool:
            if any(worker.is_stopped for worker in self.workers):
                return False
            return not await persist(lambda: self.pool.fetchval(MOVING))

        await until(is_quiet, within=PATIENCE)

    async def _decide_all(self) -> None:
        """Decide as operators do, until nothing is left to decide: the ledger has the truth."""
        for _ in range(DECISIONS_MAX):
            standings = await read_standings(self.pool)
            heads = [each for each in standings if each.item_state in {"held", "dead"}]
            parked = {each.participant_id for each in standings if each.item_state == "parked"}
            unknown = [each.outbox_id for each in heads if each.state == "UNKNOWN"]
            failed = [
                each.outbox_id
                for each in heads
                if each.state == "FAILED" and each.participant_id in parked
            ]
            if not unknown and not failed:
                return
            self.flagged += len(unknown)
            if unknown:
                await pause(FINAL_SECONDS)  # A slow request may still be booked.
            bookings = {entry.outbox_id: entry for entry in read_ledger(self.ledger)}
            for outbox_id in unknown:
                await self._decide(outbox_id, bookings.get(str(outbox_id)))
            for outbox_id in failed:
                await self._skip(outbox_id)
            await self._settle_down()

    async def _decide(self, outbox_id: UUID, entry: Entry | None) -> None:
        """Say what the ledger shows: paid, refused, or never arrived."""
        reason = "the ledger was read"
        if entry is None:
            decision = Decision(resolution="again", who=WHO, reason=reason)
        elif entry.is_booked:
            decision = Decision(
                resolution="paid", who=WHO, reason=reason, reference=entry.reference
            )
        else:
            decision = Decision(resolution="failed", who=WHO, reason=reason)
        resolver = Resolver(archive=Archive(log=get_logger()))
        # A late result may have decided meanwhile.
        with suppress(StateConflict):
            async with self.pool.acquire() as db:
                await resolver.resolve(db, outbox_id, decision)

    async def _skip(self, outbox_id: UUID) -> None:
        async with self.pool.acquire() as db:
            with suppress(StateConflict):
                archive = Archive(log=get_logger())
                await operate.skip(db, outbox_id, archive=archive, who=WHO, reason="was refused")


async def persist(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()`, again while the database restarts."""
    while True:
        with suppress(DatabaseAway), database_away():
            return await work()
        await pause(SWEEP_SECONDS)
