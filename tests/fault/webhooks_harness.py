"""The harness of the crash test of webhooks: all processes, their restarts and their kills."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path
from time import time
from typing import Any, Literal, LiteralString, TypeAlias

import httpx

from penstock import Penstock
from penstock.base.aio import alongside, finish, spawn
from penstock.domains.webhooks.domain import LANE, ORDERED_LANE
from penstock.kernel.inspect import Balance, balance
from penstock.kernel.lane import set_lane
from penstock.postgres.embedded import Server, embedded_server
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Pool, database_away, open_pool
from tests.e2e.command import clean_environment
from tests.fault.harness import WAIT_SECONDS
from tests.fault.processes import Child, ForkServer
from tests.fault.waiting import pause, until
from tests.fault.webhooks_plan import SUBSCRIPTIONS, secret_of
from tests.kafka_broker import Broker, running_broker
from tests.ports import free_port
from tests.redis_server import RedisServer, running_redis

APIS = 2
WORKERS = 3
CONSUMERS = 2
PARTITIONS = 4
APP = "tests.fault.webhooks_app:app"
TOPIC = "events.pending"
KEY = "a-key-for-the-crash-test"
BALANCE_SECONDS = 1.0
KILL_PAUSE = (0.5, 2.0)  # Seconds between two kills,
GROUP_PAUSE = (0.2, 1.0)  # and between those of one group.
START_SECONDS = 10.0  # Five times what a process needs until it handles signals.
RESTART_PAUSE = (0.1, 1.0)  # Until a killed process is started again.
CALL_TIMEOUT_SECONDS = 15  # On a busy machine an answer may take seconds.
NO_PID = 0
LAST_LINES = 40  # Of each log, printed after a failure.

POLICY: dict[str, Any] = {
    # Short for killed workers, and long enough for running ones on a busy machine.
    "lease": timedelta(seconds=3),
    "backoff_base": timedelta(milliseconds=50),
    "backoff_cap": timedelta(seconds=1),
    "max_attempts": 50,  # No item may become dead by lost attempts: this test kills often.
    "concurrency": 200,
}

# An ended lease is deleted, with the name of its worker; the proof needs that name.
KEEP_LEASES: LiteralString = """
CREATE TABLE held_lease (token bigint PRIMARY KEY, worker text NOT NULL);
CREATE FUNCTION keep_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO held_lease (token, worker) VALUES (NEW.token, NEW.worker);
    RETURN NULL;
END $$;
CREATE TRIGGER keep_lease AFTER INSERT ON penstock.lease
    FOR EACH ROW EXECUTE FUNCTION keep_lease();
"""

Kind = Literal["api", "worker", "consumer", "redis", "broker", "postgres", "receiver"]
KillGroup: TypeAlias = tuple[Kind, ...]  # Processes that are killed shortly one after another.
# How often each is killed: less often if the restart, or its detection, takes seconds. A process
# that is killed while the database is down may hold results that are not stored yet.
WEIGHTS: dict[KillGroup, int] = {
    ("worker",): 8,
    ("api",): 4,
    ("redis",): 4,
    ("consumer",): 1,
    ("broker",): 2,
    ("postgres",): 1,
    ("postgres", "worker"): 1,
    ("postgres", "consumer"): 2,
}


@dataclass(slots=True)
class Kill:
    """One kill; for the database, `over_at` is when it answered again."""

    kind: Kind
    pid: int
    at: float
    over_at: float


@dataclass(frozen=True, slots=True)
class End:
    """The end of a process that was not killed."""

    code: int
    started_at: float
    at: float


@dataclass(slots=True)
class Supervised:
    """A process that is started again whenever it ends."""

    kind: Kind
    command: tuple[str, ...]  # A module and its arguments.
    log: Path
    process: Child | None = None
    started_at: float = 0.0
    is_closing: bool = False
    ends: list[End] = field(default_factory=list[End])  # Neither killed nor stopped.
    _killed: set[int] = field(default_factory=set[int])

    @property
    def pid(self) -> int | None:
        """Return the id of the process if it runs."""
        if self.process is None or not self.process.is_running:
            return None
        return self.process.pid

    async def run(
        self, forks: ForkServer, environment: dict[str, str], chance: random.Random
    ) -> None:
        """Run the process, and restart it, until `stop` is called; leaves no process behind."""
        try:
            while not self.is_closing:
                self.process = await forks.start(
                    *self.command, log=self.log, environment=environment
                )
                self.started_at = time()
                code = await self.process.wait()
                if self.process.pid not in self._killed and (code != 0 or not self.is_closing):
                    self.ends.append(End(code, self.started_at, time()))
                if not self.is_closing:
                    await pause(chance.uniform(*RESTART_PAUSE))
        finally:
            if self.process is not None:
                await self.process.end()

    def kill(self) -> int:
        assert self.process is not None
        self._killed.add(self.process.pid)
        self.process.send(signal.SIGKILL)
        return self.process.pid

    def stop(self) -> None:
        """Request a clean stop; a process that may not handle signals yet is killed."""
        self.is_closing = True
        if self.process is not None and self.process.is_running:
            if time() < self.started_at + START_SECONDS:
                self.kill()
            else:
                self.process.send(signal.SIGTERM)


@dataclass(slots=True, kw_only=True)
class Harness:
    """All servers and processes, and their kills."""

    server: Server
    pool: Pool
    redis: RedisServer
    broker: Broker
    folder: Path
    receiver_port: int
    api_ports: Sequence[int]
    processes: list[Supervised]
    stopped: set[Kind] = field(default_factory=set[Kind])  # Servers that are down.
    kill_period: tuple[float, float] = (inf, inf)  # Its start, and its length in seconds.
    kills: list[Kill] = field(default_factory=list[Kill])
    balances: list[Balance] = field(default_factory=list[Balance])

    @property
    def record(self) -> Path:
        return self.folder / "record"

    @property
    def api_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.api_ports]

    async def kill_at_random(self, groups: Sequence[KillGroup], *, chance: random.Random) -> None:
        """Kill at random instants; what was killed is started again."""
        planned: list[tuple[Kind, float]] = [
            (kind, chance.uniform(*(GROUP_PAUSE if position else KILL_PAUSE)))
            for members in groups
            for position, kind in enumerate(members)
        ]
        self.kill_period = (time(), sum(delay for _, delay in planned))
        async with asyncio.TaskGroup() as group:
            for kind, delay in planned:
                await pause(delay)
                self._kill_one(kind, chance, group)

    def has_passed(self, share: float) -> bool:
        """Return whether this share of the kill period has passed."""
        began_at, seconds = self.kill_period
        return time() >= began_at + share * seconds

    def _kill_one(self, kind: Kind, chance: random.Random, group: asyncio.TaskGroup) -> None:
        """Kill one process of a kind, if one is running."""
        if kind in self.stopped:
            return
        match kind:
            case "api" | "worker" | "consumer":
                up = [each for each in self.processes if each.kind == kind and each.pid]
                if up:
                    self._note(kind, chance.choice(up).kill())
            case "redis":
                self.redis.kill()
                self._note(kind, NO_PID)
                spawn(group, self._restart(kind, self.redis.start, chance))
            case "broker":
                self.broker.kill()
                self._note(kind, NO_PID)
                spawn(group, self._restart(kind, self.broker.revive, chance))
            case "postgres":
                pid = self.server.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                spawn(group, self._until_postgres_is_back(self._note(kind, pid)))
            case "receiver":
                raise AssertionError("the record of the receiver would be lost")

    def _note(self, kind: Kind, pid: int) -> Kill:
        now = time()
        self.kills.append(Kill(kind, pid, now, now))
        return self.kills[-1]

    async def _restart(self, kind: Kind, start: Callable[[], None], chance: random.Random) -> None:
        self.stopped.add(kind)
        await pause(chance.uniform(*RESTART_PAUSE))
        # A cancelled thread would continue, and start a server that is never stopped.
        await finish(asyncio.to_thread(start), within=timedelta(seconds=WAIT_SECONDS))
        self.stopped.remove(kind)

    async def _until_postgres_is_back(self, kill: Kill) -> None:
        """Wait until the server answers again; `embedded_server` restarts it."""
        self.stopped.add(kill.kind)

        async def is_back() -> bool:
            return self.server.pid not in (None, kill.pid) and await self.balance() is not None

        await until(is_back, within=WAIT_SECONDS)
        kill.over_at = time()
        self.stopped.remove(kill.kind)

    async def balance(self) -> Balance | None:
        """Count all items in one snapshot; None while the database is unavailable."""
        try:
            with database_away():
                return await balance(self.pool)
        except DatabaseAway:
            return None

    async def watch_balance(self) -> None:
        """Count repeatedly, and fail immediately if a delivery is in no table, or in two."""
        while True:
            counted = await self.balance()
            if counted is not None:
                assert counted.is_even, counted
                self.balances.append(counted)
            await pause(BALANCE_SECONDS)

    async def until_drained(self, deliveries: int, *, within: float) -> None:
        """Wait until there are this many deliveries, all of them done or dead."""

        async def is_drained() -> bool:
            last = self.balances[-1]
            return last.done + last.dead == last.accepted >= deliveries

        try:
            await until(is_drained, within=within)
        except TimeoutError:
            raise AssertionError(f"of {deliveries} deliveries: {self.balances[-1]}") from None

    async def stop_all(self) -> None:
        """Stop all processes but the receiver cleanly; other exit codes are recorded as ends."""
        stoppable = [each for each in self.processes if each.kind != "receiver"]
        for each in stoppable:
            each.stop()

        async def have_ended() -> bool:
            return not any(each.pid for each in stoppable)

        await until(have_ended, within=WAIT_SECONDS)

    def summary(self) -> str:
        """Return kills, ends, the balance and the logs, for a failed test."""
        lines = [f"{kill.at:.3f} killed {kill.kind} {kill.pid}" for kill in self.kills]
        lines += [f"{each.log.name} ended by itself: {each.ends}" for each in self.processes]
        lines += [str(self.balances[-1])] if self.balances else []
        for log in sorted(self.folder.glob("*.log")):
            lines += [
                f"--- {log.name}",
                *log.read_text(errors="replace").splitlines()[-LAST_LINES:],
            ]
        return "\n".join(lines)


@asynccontextmanager
async def running_harness(folder: Path, forks: ForkServer, *, seed: int) -> AsyncGenerator[Harness]:
    """Run all processes, subscribe the receiver, and leave no process behind."""
    chance = random.Random(f"restarts {seed}")
    async with embedded_server(folder / "data") as server:
        await _prepare(server.dsn)
        pool = await open_pool(server.dsn, min_size=1, max_size=4)
        (folder / "kafka").mkdir()
        with (
            running_redis(folder) as redis,
            running_broker(folder / "kafka", own=True) as broker,
        ):
            broker.create_topic(TOPIC, PARTITIONS)
            opened = Harness(
                server=server,
                pool=pool,
                redis=redis,
                broker=broker,
                folder=folder,
                receiver_port=free_port(),
                api_ports=(ports := [free_port() for _ in range(APIS)]),
                processes=_processes(folder, ports),
            )
            environment = _environment(opened)
            opened.processes.append(_receiver(opened, seed))
            try:
                loops = [each.run(forks, environment, chance) for each in opened.processes]
                async with alongside(*loops):
                    await _subscribe(opened)
                    yield opened
            except BaseException:
                print(opened.summary())
                raise
            finally:
                pool.terminate()


async def _prepare(dsn: str) -> None:
    """Create tables and lanes, as the first process does, and change the lanes' policies."""
    async with Penstock(dsn) as app, app.pool.acquire() as db:
        for lane in (LANE, ORDERED_LANE):
            await set_lane(db, lane, who="test", **POLICY)
        await db.execute(KEEP_LEASES)


def _processes(folder: Path, api_ports: Sequence[int]) -> list[Supervised]:
    commands: list[tuple[Kind, tuple[str, ...]]] = [
        *(("api", ("penstock.cli", "serve", "--port", str(port))) for port in api_ports),
        *(("worker", ("penstock.cli", "worker", "--app", APP)) for _ in range(WORKERS)),
        *(("consumer", ("tests.fault.webhooks_consumer",)) for _ in range(CONSUMERS)),
    ]
    return [
        Supervised(kind, command, folder / f"{kind}-{number}.log")
        for number, (kind, command) in enumerate(commands)
    ]


def _receiver(opened: Harness, seed: int) -> Supervised:
    """Return the receiver, which is never killed."""
    arguments = (str(opened.receiver_port), str(opened.record), str(seed))
    command = ("tests.fault.webhooks_receiver", *arguments)
    return Supervised("receiver", command, opened.folder / "receiver.log")


def _environment(opened: Harness) -> dict[str, str]:
    return clean_environment(
        inherited()
        | {
            "PENSTOCK_DATABASE_URL": opened.server.dsn,
            "PENSTOCK_REDIS_URL": opened.redis.url,
            "PENSTOCK_KAFKA_BOOTSTRAP": opened.broker.bootstrap,
            "PENSTOCK_KAFKA_TOPIC": TOPIC,
            "PENSTOCK_ADMIN_KEY": KEY,
            "PENSTOCK_POOL_SIZE_MIN": "1",
            "PENSTOCK_POOL_SIZE_MAX": "6",
            "PENSTOCK_LOG_LEVEL": "warning",
        }
    )


def inherited() -> dict[str, str]:
    """Return the settings by which processes may deliver to loopback, as the tests may."""
    names = ("PENSTOCK_EGRESS_ALLOW", "PENSTOCK_SECRET_KEY")
    return {name: os.environ[name] for name in names}


async def _subscribe(opened: Harness) -> None:
    """Wait until all APIs answer, and create the planned subscriptions."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as client:

        async def are_up() -> bool:
            with suppress(httpx.TransportError):
                answers = [await client.get(f"{url}/lanes") for url in opened.api_urls]
                return all(answer.status_code == 200 for answer in answers)
            return False

        await until(are_up, within=WAIT_SECONDS)
        for path, options in SUBSCRIPTIONS.items():
            common = {
                "url": f"http://127.0.0.1:{opened.receiver_port}{path}",
                "secret": secret_of(path),
                "rate_limit": None,
                "timeout_seconds": CALL_TIMEOUT_SECONDS,
            }
            made = await client.post(f"{opened.api_urls[0]}/subscriptions", json=common | options)
            assert made.status_code == 201, made.text
