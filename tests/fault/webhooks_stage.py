"""All processes of the crash test of webhooks, who keeps them running, and who kills them."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path
from time import time
from typing import Literal, LiteralString, TypeAlias

import httpx

from penstock import Penstock
from penstock.base.aio import alongside, finish, spawn
from penstock.base.errors import DatabaseAway
from penstock.domains.webhooks.domain import LANE, ORDERED_LANE
from penstock.kernel.inspect import Balance, balance
from penstock.kernel.lane import set_lane
from penstock.postgres.embedded import Server, embedded_server
from penstock.postgres.pool import Pool, database_away, open_pool
from tests.e2e.command import clean_environment
from tests.fault.scene import PATIENCE, ROOT
from tests.fault.waiting import moment, until
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
BALANCE_PAUSE = 1.0
KILL_PAUSE = (0.5, 2.0)  # Seconds between two kills,
VOLLEY_PAUSE = (0.2, 1.0)  # and between those of one volley.
START_SECONDS = 10.0  # Five times what a process needs until it listens to signals.
RESTART_PAUSE = (0.1, 1.0)  # Until what was killed is started again.
CALL_TIMEOUT_SECONDS = 15  # On a busy machine a sound answer may take seconds.
NO_PID = 0
LAST_LINES = 40  # Of each log, told when something went wrong.

POLICY = {
    # What a killed worker held comes back soon, and a live one does not lose it on a busy machine.
    "lease": timedelta(seconds=3),
    "backoff_base": timedelta(milliseconds=50),
    "backoff_cap": timedelta(seconds=1),
    "max_attempts": 50,  # Nothing may die of being lost again and again: these tests kill a lot.
    "concurrency": 200,
}

# A lease is gone when it has ended, and with it the name of the worker who held it.
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
Volley: TypeAlias = tuple[Kind, ...]  # Who are killed one shortly after the other.
# How often each comes: less what takes seconds to come back, or to be missed. Who is killed while
# the database is away may have in hand what nobody else knows of yet.
WEIGHTS: dict[Volley, int] = {
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
    """Somebody was killed; `over_at` is when the database answered again, if it was that."""

    kind: Kind
    pid: int
    at: float
    over_at: float


@dataclass(frozen=True, slots=True)
class End:
    """A process has ended by itself."""

    code: int
    started_at: float
    at: float


@dataclass(slots=True)
class Place:
    """Where a process runs that is started again whenever it ends."""

    kind: Kind
    command: tuple[str, ...]
    log: Path
    process: asyncio.subprocess.Process | None = None
    started_at: float = 0.0
    is_closing: bool = False
    ends: list[End] = field(default_factory=list[End])  # That nobody had asked for.
    _killed: set[int] = field(default_factory=set[int])

    @property
    def pid(self) -> int | None:
        """Return the number of the process if it lives."""
        if self.process is None or self.process.returncode is not None:
            return None
        return self.process.pid

    async def keep(self, environment: dict[str, str], chance: random.Random) -> None:
        """Run the process, again and again, until it is told to stop; leaves none behind."""
        try:
            while not self.is_closing:
                self.process = await _start(self.command, self.log, environment)
                self.started_at = time()
                code = await self.process.wait()
                if self.process.pid not in self._killed and (code != 0 or not self.is_closing):
                    self.ends.append(End(code, self.started_at, time()))
                if not self.is_closing:
                    await moment(chance.uniform(*RESTART_PAUSE))
        finally:
            if self.process is not None and self.process.returncode is None:
                self.process.kill()
                await self.process.wait()

    def kill(self) -> int:
        assert self.process is not None
        self._killed.add(self.process.pid)
        self.process.kill()
        return self.process.pid

    def stop(self) -> None:
        """Ask for an end in good order, for which one that has just begun is not ready yet."""
        self.is_closing = True
        if self.pid is not None:
            if time() < self.started_at + START_SECONDS:
                self.kill()
            else:
                os.kill(self.pid, signal.SIGTERM)


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything that runs, and what has happened to it."""

    server: Server
    pool: Pool
    redis: RedisServer
    broker: Broker
    folder: Path
    receiver_port: int
    api_ports: Sequence[int]
    places: list[Place]
    away: set[Kind] = field(default_factory=set[Kind])  # Those of which there is only one.
    havoc: tuple[float, float] = (inf, inf)  # When it began, and for how many seconds it lasts.
    kills: list[Kill] = field(default_factory=list[Kill])
    balances: list[Balance] = field(default_factory=list[Balance])

    @property
    def record(self) -> Path:
        return self.folder / "record"

    @property
    def api_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.api_ports]

    async def wreak_havoc(self, volleys: Sequence[Volley], *, chance: random.Random) -> None:
        """Kill at random instants; whoever is killed is started again."""
        shots: list[tuple[Kind, float]] = [
            (kind, chance.uniform(*(VOLLEY_PAUSE if place else KILL_PAUSE)))
            for volley in volleys
            for place, kind in enumerate(volley)
        ]
        self.havoc = (time(), sum(pause for _, pause in shots))
        async with asyncio.TaskGroup() as group:
            for kind, pause in shots:
                await moment(pause)
                self._strike(kind, chance, group)

    def is_over(self, share: float) -> bool:
        """Say whether so much of the havoc is over."""
        began_at, seconds = self.havoc
        return time() >= began_at + share * seconds

    def _strike(self, kind: Kind, chance: random.Random, group: asyncio.TaskGroup) -> None:
        """Kill, or do nothing where nobody of that kind is up."""
        if kind in self.away:
            return
        match kind:
            case "api" | "worker" | "consumer":
                up = [each for each in self.places if each.kind == kind and each.pid]
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
                raise AssertionError("what it has seen would be lost")

    def _note(self, kind: Kind, pid: int) -> Kill:
        now = time()
        self.kills.append(Kill(kind, pid, now, now))
        return self.kills[-1]

    async def _restart(self, kind: Kind, start: Callable[[], None], chance: random.Random) -> None:
        self.away.add(kind)
        await moment(chance.uniform(*RESTART_PAUSE))
        # Cut short, the thread would go on and start a server that nobody stops.
        await finish(asyncio.to_thread(start), within=timedelta(seconds=PATIENCE))
        self.away.remove(kind)

    async def _until_postgres_is_back(self, kill: Kill) -> None:
        """Wait until the new server answers; its keeper starts it."""
        self.away.add(kill.kind)

        async def is_back() -> bool:
            return self.server.pid not in (None, kill.pid) and await self.balance() is not None

        await until(is_back, within=PATIENCE)
        kill.over_at = time()
        self.away.remove(kill.kind)

    async def balance(self) -> Balance | None:
        """Count all items in one snapshot; None while the database is away."""
        try:
            with database_away():
                return await balance(self.pool)
        except DatabaseAway:
            return None

    async def watch_balance(self) -> None:
        """Count over and over, and fail at once when a delivery is in no place, or in two."""
        while True:
            counted = await self.balance()
            if counted is not None:
                assert counted.is_even, counted
                self.balances.append(counted)
            await moment(BALANCE_PAUSE)

    async def until_at_rest(self, deliveries: int, *, within: float) -> None:
        """Wait until there are so many deliveries, and all of them done or dead."""

        async def is_at_rest() -> bool:
            last = self.balances[-1]
            return last.done + last.dead == last.accepted >= deliveries

        try:
            await until(is_at_rest, within=within)
        except TimeoutError:
            raise AssertionError(f"of {deliveries} deliveries: {self.balances[-1]}") from None

    async def stop_all(self) -> None:
        """Stop all of ours in good order; what does not end well is noted in its place."""
        mortals = [place for place in self.places if place.kind != "receiver"]
        for place in mortals:
            place.stop()

        async def have_ended() -> bool:
            return not any(place.pid for place in mortals)

        await until(have_ended, within=PATIENCE)

    def summary(self) -> str:
        """Say what there is to know when something went wrong."""
        told = [f"{kill.at:.3f} killed {kill.kind} {kill.pid}" for kill in self.kills]
        told += [f"{place.log.name} ended by itself: {place.ends}" for place in self.places]
        told += [str(self.balances[-1])] if self.balances else []
        for log in sorted(self.folder.glob("*.log")):
            told += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-LAST_LINES:]]
        return "\n".join(told)


@asynccontextmanager
async def stage(folder: Path, *, seed: int) -> AsyncGenerator[Stage]:
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
            opened = Stage(
                server=server,
                pool=pool,
                redis=redis,
                broker=broker,
                folder=folder,
                receiver_port=free_port(),
                api_ports=(ports := [free_port() for _ in range(APIS)]),
                places=_places(folder, ports),
            )
            environment = _environment(opened)
            opened.places.append(_receiver(opened, seed))
            try:
                keepers = [place.keep(environment, chance) for place in opened.places]
                async with alongside(*keepers):
                    await _subscribe(opened)
                    yield opened
            except BaseException:
                print(opened.summary())
                raise
            finally:
                pool.terminate()


async def _prepare(dsn: str) -> None:
    """Make tables and lanes, as the first process would, and change what the lanes may be told."""
    async with Penstock(dsn) as app, app.pool.acquire() as db:
        for lane in (LANE, ORDERED_LANE):
            await set_lane(db, lane, who="test", **POLICY)
        await db.execute(KEEP_LEASES)


def _places(folder: Path, api_ports: Sequence[int]) -> list[Place]:
    commands: list[tuple[Kind, tuple[str, ...]]] = [
        *(("api", ("penstock.cli", "serve", "--port", str(port))) for port in api_ports),
        *(("worker", ("penstock.cli", "worker", "--app", APP)) for _ in range(WORKERS)),
        *(("consumer", ("tests.fault.webhooks_consumer",)) for _ in range(CONSUMERS)),
    ]
    return [
        Place(kind, command, folder / f"{kind}-{number}.log")
        for number, (kind, command) in enumerate(commands)
    ]


def _receiver(opened: Stage, seed: int) -> Place:
    """Return the one whom nobody kills."""
    arguments = (str(opened.receiver_port), str(opened.record), str(seed))
    command = ("tests.fault.webhooks_receiver", *arguments)
    return Place("receiver", command, opened.folder / "receiver.log")


def _environment(opened: Stage) -> dict[str, str]:
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
    """Return what a process of ours needs to deliver to loopback, as the tests themselves may."""
    names = ("PENSTOCK_EGRESS_ALLOW", "PENSTOCK_SECRET_KEY")
    return {name: os.environ[name] for name in names}


async def _start(
    command: tuple[str, ...], log: Path, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    with log.open("ab") as words:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *command), cwd=ROOT, stdout=words, stderr=words, env=environment
        )


async def _subscribe(opened: Stage) -> None:
    """Wait until all is up, and make the subscriptions of the plan."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE) as client:

        async def are_up() -> bool:
            with suppress(httpx.TransportError):
                answers = [await client.get(f"{url}/lanes") for url in opened.api_urls]
                return all(answer.status_code == 200 for answer in answers)
            return False

        await until(are_up, within=PATIENCE)
        for path, wishes in SUBSCRIPTIONS.items():
            asked = {
                "url": f"http://127.0.0.1:{opened.receiver_port}{path}",
                "secret": secret_of(path),
                "rate_limit": None,
                "timeout_seconds": CALL_TIMEOUT_SECONDS,
            }
            made = await client.post(f"{opened.api_urls[0]}/subscriptions", json=asked | wishes)
            assert made.status_code == 201, made.text
