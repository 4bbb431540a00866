"""One run: the plan of a seed against real workers, a real PostgreSQL and the simulator."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID

import httpx
import msgspec

from penstock.base.aio import alongside, finish
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.vault import Vault, parse_keys
from penstock.domains.outbox.control.suspension import FailurePolicy, put_failure_policy
from penstock.domains.outbox.enqueue import AcceptedInstruction, NewInstruction, Outbox
from penstock.domains.outbox.errors import InstructionConflict
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.rails.codes import Code, put_code
from penstock.domains.outbox.rails.registry import (
    HTTP_JSON,
    SIMULATOR,
    RailRow,
    put_rail,
    read_scheme,
)
from penstock.kernel.errors import StateConflict
from penstock.kernel.lane import create_lane
from penstock.kernel.operate import reschedule
from penstock.kernel.sweep import sweep
from penstock.postgres.cluster import START_TIMEOUT, halt, is_alive, launch
from penstock.postgres.embedded import Server, running
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, connect, database_away, open_pool
from tests.database import MIGRATION_PACKAGES, copy_database, database_dsn, run_sql
from tests.fault.outbox_seeds.children import (
    ApiArguments,
    Arguments,
    SimulatorArguments,
    WorkerArguments,
)
from tests.fault.outbox_seeds.operators import WHO, Operator
from tests.fault.outbox_seeds.persist import persist
from tests.fault.outbox_seeds.plan import (
    BRIEF_KEY_SECONDS,
    FINAL_SECONDS,
    KEY_MODES,
    QUERY_MODES,
    TIMEOUT_SECONDS,
    Fault,
    Life,
    Plan,
    Planned,
    describe,
    make_plan,
)
from tests.fault.outbox_seeds.proof import (
    Observed,
    find_unfinished,
    find_unsealed,
    find_wrongs,
    read_ledger,
    read_standings,
    write_traces,
)
from tests.fault.outbox_seeds.reports import SECRET, Reporter
from tests.fault.outbox_seeds.traffic import count_repeats, read_traffic
from tests.fault.processes import Child, ForkServer
from tests.fault.record import read_lines
from tests.fault.waiting import pause, until
from tests.ports import free_port

CHILDREN = "tests.fault.outbox_seeds.children"
SECRET_KEY = "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI="
ENVIRONMENT: Mapping[str, str] = {
    "PENSTOCK_POOL_SIZE_MIN": "1",
    "PENSTOCK_POOL_SIZE_MAX": "6",
    "PENSTOCK_POLL_INTERVAL": "0.5",
    "PENSTOCK_OUTBOX_SIMULATOR": "true",
    "PENSTOCK_EGRESS_ALLOW": "127.0.0.0/8",  # For a rail on loopback with another adapter.
    "PENSTOCK_SECRET_KEY": SECRET_KEY,
}
TEMPLATE = "fault_template"
RAIL = "bank"
LEASE = timedelta(seconds=1)  # The shortest that a lane may have.
MAX_ATTEMPTS = 20  # Lost attempts count.
SWEEP_SECONDS = 0.25
PATIENCE = 90.0  # For what takes a few seconds on an idle machine.
DECISIONS_MAX = 12  # Rounds of a person's decisions.
RETRYABLE_RETURN = Code(
    code_set=SIMULATOR, code="RETURNED", code_class="retryable", meaning="returned", source="test"
)
SETTLING_SECONDS = 20.0  # How long the rail may be asked in vain; then the proof says about what.
REFUSALS_SHOWN = 3  # The last ones of a run that failed; the others are in its folder.
RENEWALS = 6  # During the faults.
RENEW_SECONDS = 0.3  # Between two tries to send an instruction under another key.
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

# Work that goes on by itself: what is ready or in flight, doubts that no person has to decide, and
# reports that nothing keeps from being applied. A dead head blocks its participant, and so does one
# that an operator or a suspension holds.
MOVING: LiteralString = """
SELECT EXISTS (SELECT FROM penstock.ready) OR EXISTS (SELECT FROM penstock.lease)
    OR EXISTS (SELECT FROM penstock.vacated_key) OR EXISTS (SELECT FROM penstock.outbox_recheck)
    OR EXISTS (
        SELECT FROM penstock.outbox_unknown AS u LEFT JOIN penstock.outbox_lookup AS k
            ON k.item_id = u.id AND k.attempt = u.attempt AND k.purpose = 'unknown'
        -- What a suspension stops is noted, and released after a person has resumed it.
        WHERE k.left_at IS NULL AND (k.item_id IS NULL OR u.participant_id NOT IN (
            SELECT participant_id FROM penstock.outbox_suspension))
    )
    OR EXISTS (
        SELECT FROM penstock.outbox_result AS r JOIN penstock.outbox_instruction USING (outbox_id)
        WHERE r.applied_at IS NULL AND item_id NOT IN (SELECT id FROM penstock.held)
    )
"""
# The rail is asked whether these are settled.
AWAITED: LiteralString = """
SELECT i.outbox_id, i.instruction_id
FROM penstock.outbox_lookup JOIN penstock.outbox_instruction AS i USING (item_id)
WHERE purpose = 'settlement'
"""
# Ask rails again at once, where the reconciler would wait for longer each time. What it decides is
# the same: when "not found" is final depends on the attempts alone.
HASTEN_LOOKUPS: LiteralString = """
UPDATE penstock.outbox_lookup SET due_at = now()
WHERE left_at IS NULL AND due_at > now() + interval '0.2 seconds'
"""
HASTEN_RESULTS: LiteralString = """
UPDATE penstock.outbox_result SET due_at = now()
WHERE applied_at IS NULL AND due_at > now() + interval '0.2 seconds'
"""
# What a switch or a suspension has stopped looks again after 5 or 30 seconds.
LATE: LiteralString = """
SELECT id, now() AS now FROM penstock.ready WHERE due_at > now() + interval '2 seconds'
"""


class RunFailed(Exception):
    """A promise was broken, or the run did not come to an end."""

    def __init__(
        self,
        plan: Plan,
        wrongs: Sequence[str],
        folder: Path,
        *,
        hits: Counter[tuple[str, ...]],
    ) -> None:
        lines = "\n  ".join(wrongs)
        super().__init__(
            f"seed {plan.seed} failed; replay it with: make fault SEED={plan.seed}\n  {lines}\n"
            f"its plan, logs, ledger and rows are in {folder}\n{describe(plan)}"
        )
        self.seed = plan.seed
        self.hits = hits


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
    await migrate(db, MIGRATION_PACKAGES)
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
            refusals = "\n".join(run.operator.refusals)
            (folder / "refusals.txt").write_text(refusals, encoding="utf-8")
            await write_traces(pool, folder / "rows.txt", entries)
            kept = keep_in / folder.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            last = [f"refused {each}" for each in run.operator.refusals[-REFUSALS_SHOWN:]]
            raise RunFailed(plan, [*wrongs, *last], kept, hits=run.hits)
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
        flagged=run.operator.flagged,
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
    api_port: int = field(default_factory=free_port)
    # By the id and the key of an instruction.
    accepted: dict[tuple[str, str], UUID] = field(default_factory=dict[tuple[str, str], UUID])
    wrongs: list[str] = field(default_factory=list[str])
    workers: list[Child] = field(default_factory=list[Child])
    simulator: Child | None = None
    api: Child | None = None
    hits: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    operator: Operator = field(init=False)
    reporter: Reporter = field(init=False)

    def __post_init__(self) -> None:
        self.operator = Operator(pool=self.pool, ledger=self.ledger, note=self._note)
        self.reporter = Reporter(
            url=f"http://127.0.0.1:{self.api_port}",
            rail_type=RAIL,
            ledger=self.ledger,
            planned={each.name: each for each in self.plan.instructions},
            note=self._note,
        )

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite3"

    @property
    def traffic(self) -> Path:
        return self.folder / "traffic"

    @property
    def record(self) -> Path:
        return self.folder / "record"

    async def carry_out(self) -> list[str]:
        """Run the plan to its end, and return every promise that is broken."""
        works = [self._live(lives) for lives in self.plan.workers]
        try:
            await self._set_up()
            async with (
                asyncio.timeout(3 * PATIENCE),
                alongside(
                    self._keep_simulator(),
                    self._keep_api(),
                    self.reporter.run(),
                    self._sweep_often(),
                    *works,
                ),
            ):
                await asyncio.gather(
                    self._produce_watched(),
                    *(self.operator.act(act) for act in self.plan.acts),
                    self._kill_simulator(),
                    self._kill_api(),
                    self._restart_postgres(),
                )
                await self.operator.end_faults()
                await self._settle_down()
                wrongs = await self._look()
                await self._decide_all()
                wrongs += await self._look()
                wrongs += await find_unfinished(self.pool)
        except TimeoutError:
            wrongs = ["the run did not come to an end", *await self._describe_rest()]
        finally:
            for child in (*self.workers, self.simulator, self.api):
                if child is not None:
                    await child.end()
            self.hits = Counter((*words,) for words in read_lines(self.record))
            self.hits["repeat", self.plan.mode] = count_repeats(read_traffic(self.traffic))
        wrongs = [*self.wrongs, *self.reporter.wrongs, *wrongs, *await find_unsealed(self.pool)]
        return [*dict.fromkeys(wrongs)]

    async def _look(self) -> list[str]:
        observed = Observed(
            reported=self.reporter.reported(),
            plan=self.plan,
            accepted=self.accepted,
            entries=read_ledger(self.ledger),
            traffic=read_traffic(self.traffic),
            releases=self.operator.releases,
        )
        return await find_wrongs(self.pool, observed)

    def _note(self, *words: str) -> None:
        """Record that something has happened, as the processes do."""
        with self.record.open("a", encoding="ascii") as record:
            record.write(f"\n{' '.join(words)};")

    # ------------------------------------------------------------------------------ producers

    async def _set_up(self) -> None:
        is_brief = self.plan.mode == "brief"
        rail = RailRow(
            rail_type=RAIL,
            adapter=HTTP_JSON if is_brief else SIMULATOR,
            config=self._brief_config() if is_brief else self._config(),
            code_set=SIMULATOR,
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
        )
        async with self.pool.acquire() as db:
            vault = Vault(*parse_keys(SECRET_KEY))
            await put_rail(db, rail, vault=vault, who="test", result_secret=SECRET)
            if self.plan.are_returns_retryable:
                await put_code(db, RETRYABLE_RETURN, who=WHO)
            if self.plan.failures_suspend:
                policy = FailurePolicy(scope="all", name=None, policy="suspend")
                await put_failure_policy(db, policy, who=WHO)

    def _config(self) -> dict[str, Any]:
        return {
            "url": f"http://127.0.0.1:{self.port}",
            "is_idempotent": self.plan.mode in KEY_MODES,
            "can_query": self.plan.mode in QUERY_MODES,
            "is_asynchronous": self.plan.is_asynchronous,
            "not_found_is_final_after_seconds": FINAL_SECONDS,
        }

    def _brief_config(self) -> dict[str, Any]:
        """Return the config of a rail that forgets keys; the adapter `simulator` has none."""
        fields = ("instruction_id", "outbox_id", "participant_id", "sequence_id", "amount")
        body = {name: f"{{{name}}}" for name in (*fields, "currency")}
        answer = {name: [name] for name in ("code", "reference", "message", "amount", "currency")}
        return {
            "send": {
                "url": f"http://127.0.0.1:{self.port}/payments",
                "body": body | {"simulate": "{payload.simulate?}"},
            },
            "answer": answer,
            "idempotency_header": "Idempotency-Key",
            "key_valid_for_seconds": BRIEF_KEY_SECONDS,
            "is_asynchronous": self.plan.is_asynchronous,
        }

    async def _produce_watched(self) -> None:
        """Send instructions, while an operator watches what fails."""
        async with alongside(self.operator.remedy_failures(self.reporter.planned)):
            await self._produce()

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
        for _ in range(RENEWALS):
            await self._renew_all()
            await pause(RENEW_SECONDS)

    async def _renew_all(self) -> bool:
        """Send instructions under another key; return whether one was accepted."""
        is_new = False
        for each in self.plan.instructions:
            if each.is_renewed and (each.name, _key(each, 2)) not in self.accepted:
                # Refused while the first one may be paid.
                with suppress(InstructionConflict):
                    answer = await self._send(each, generation=2)
                    self._check_answers(each, [answer], generation=2)
                    self._note("renew", "accepted")
                    is_new = True
        return is_new

    async def _order_crash(self, planned: Planned) -> None:
        """Have the simulator end when it gets this instruction, once."""
        order = {"instruction_id": planned.name, "crash": planned.crash}
        with suppress(httpx.TransportError):  # It may be down, and then this fault is left out.
            async with httpx.AsyncClient() as client:
                await client.post(f"http://127.0.0.1:{self.port}/orders", json=order)

    async def _send(
        self, planned: Planned, *, amount: str | None = None, generation: int = 1
    ) -> AcceptedInstruction:
        """Send an instruction; without an answer, send it again."""
        payload = {
            "amount": amount or planned.amount,
            "currency": "EUR",
            "destination": {"iban": "x"},
        }
        if planned.simulate is not None and generation == 1:
            payload["simulate"] = planned.simulate
        new = NewInstruction(
            instruction_id=planned.name,
            participant_id=planned.participant,
            idempotency_key=_key(planned, generation),
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

    def _check_answers(
        self, planned: Planned, answers: Sequence[AcceptedInstruction], *, generation: int = 1
    ) -> None:
        place = planned.name, _key(planned, generation)
        known = self.accepted.setdefault(place, answers[0].outbox_id)
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
            dsn=self.dsn, record=str(self.record), skew_minutes=life.skew_minutes
        )
        if fault is not None:
            arguments.how, arguments.label, arguments.skip = fault.how, fault.label, fault.skip
        worker = await self._start(arguments, log="workers.log")
        self.workers.append(worker)
        return worker

    async def _start(self, arguments: Arguments, *, log: str) -> Child:
        return await self.site.forks.start(
            CHILDREN,
            msgspec.json.encode(arguments).decode(),
            log=self.folder / log,
            environment={**os.environ, **ENVIRONMENT},
        )

    async def _continue_later(self, worker: Child, fault: Fault) -> None:
        async def is_stopped() -> bool:
            return worker.is_stopped

        # Not every label is reached.
        with suppress(TimeoutError):
            await until(is_stopped, within=PATIENCE)
            await pause(fault.seconds)
            worker.send(signal.SIGCONT)
            self._note("continue", "worker")

    async def _keep_simulator(self) -> None:
        """Run the simulator, and start it again on its ledger whenever it has ended."""
        arguments = SimulatorArguments(
            port=self.port,
            ledger=str(self.ledger),
            record=str(self.record),
            traffic=str(self.traffic),
            is_idempotent=self.plan.mode in KEY_MODES,
        )
        while True:
            self.simulator = await self._start(arguments, log="simulator.log")
            await self.simulator.wait()

    async def _keep_api(self) -> None:
        """Run the API, and start it again whenever it has ended."""
        arguments = ApiArguments(
            dsn=self.dsn,
            port=self.api_port,
            record=str(self.record),
            skew_minutes=self.plan.api_skew_minutes,
        )
        while True:
            self.api = await self._start(arguments, log="api.log")
            await self.api.wait()
            await pause(SWEEP_SECONDS)

    async def _kill_simulator(self) -> None:
        for wait in _waits(self.plan.simulator_kills):
            await pause(wait)
            if self.simulator is not None and self.simulator.send(signal.SIGKILL):
                self._note("kill", "simulator")

    async def _kill_api(self) -> None:
        for wait in _waits(self.plan.api_kills):
            await pause(wait)
            if self.api is not None and self.api.send(signal.SIGKILL):
                self._note("kill", "api")

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
        self._note(self.plan.postgres_signal, "postgres")

    async def _is_postgres_dead(self) -> bool:
        return not is_alive(self.site.server.cluster)

    async def _sweep_often(self) -> None:
        """Sweep, and have rails asked again, more often than a worker does by itself."""
        while True:
            with suppress(DatabaseAway), database_away():
                await sweep(self.pool, meter=Meter(), log=get_logger())
                await self.pool.execute(HASTEN_LOOKUPS)
                await self.pool.execute(HASTEN_RESULTS)
                await self._hasten_late()
            await pause(SWEEP_SECONDS)

    async def _hasten_late(self) -> None:
        async with self.pool.acquire() as db:
            for row in await db.fetch(LATE):
                with suppress(StateConflict):
                    await reschedule(db, row["id"], row["now"], who="test", owner=OWNER)

    # --------------------------------------------------------------------------------- the end

    async def _settle_down(self) -> None:
        """Wait until nothing goes on by itself; raises TimeoutError."""

        async def is_quiet() -> bool:
            if any(worker.is_stopped for worker in self.workers):
                return False
            if not self.reporter.is_done():
                return False
            return not await persist(lambda: self.pool.fetchval(MOVING))

        async def is_settled() -> bool:
            return not await persist(self._is_settling) and await is_quiet()

        await until(is_quiet, within=PATIENCE)
        with suppress(TimeoutError):
            await until(is_settled, within=SETTLING_SECONDS)
        await until(is_quiet, within=PATIENCE)

    async def _is_settling(self) -> bool:
        """Return whether the rail is asked about an instruction that it has an answer to."""
        planned = {each.name: each for each in self.plan.instructions}
        codes = {entry.outbox_id: entry.code for entry in read_ledger(self.ledger)}
        return any(
            codes.get(str(row["outbox_id"])) != "ACCEPTED"
            or planned[row["instruction_id"]].later is not None
            for row in await self.pool.fetch(AWAITED)
        )

    async def _decide_all(self) -> None:
        """Decide as operators and producers do, until nothing is left to decide."""
        for _ in range(DECISIONS_MAX):
            is_renewed = await self._renew_all()
            if not await self.operator.decide_once() and not is_renewed:
                return
            await self._settle_down()

    async def _describe_rest(self) -> list[str]:
        """Return what a run that did not come to an end still waited for."""
        rest = [f"worker {each.pid} is stopped" for each in self.workers if each.is_stopped]
        rest += [] if self.reporter.is_done() else ["reports are not taken"]
        rest += [f"awaited: {dict(row.items())}" for row in await self.pool.fetch(AWAITED)]
        return [*rest, f"moving: {await self.pool.fetchval(MOVING)}"]


def _key(planned: Planned, generation: int) -> str:
    return f"key-{planned.name}-{generation}"


def _waits(instants: Sequence[float]) -> list[float]:
    """Return the waits from each instant to the next."""
    return [at - before for before, at in pairwise([0.0, *instants])]
