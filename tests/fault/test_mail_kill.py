"""Workers that die with kill -9 while they send mails: nobody is missed, and nothing is stuck."""

import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.base.aio import alongside
from penstock.compose import mail
from penstock.domains.mail.enqueue import Mailer, send_prepared
from penstock.domains.mail.inspect import read_mail
from penstock.domains.mail.relay import SmtpRelay, put_relay
from penstock.kernel.inspect import balance
from penstock.kernel.lane import set_lane
from penstock.postgres.pool import Pool
from tests.domains.mail.outbox import ADA, VAULT, a_mail
from tests.e2e.command import clean_environment
from tests.fault.processes import Child, ForkServer
from tests.fault.waiting import pause, until
from tests.smtp_server import HOST, SmtpServer, serving

PATIENCE = 60.0  # Seconds; a busy machine starts a process in a few.

SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
KILLS = int(os.environ.get("PENSTOCK_FAULT_KILLS", "6"))
MAILS = int(os.environ.get("PENSTOCK_FAULT_MAILS", "400"))
MAILS_FULL = 20_000  # From here on somebody watches the run, and its times count too.
WORKERS = 2
LOST_REPLIES = 10  # Final replies that the relay does not send.
HUNG_REPLIES = 5  # Before each kill, so that it hits mails in flight.
LEASE = timedelta(seconds=5)
STUCK_SECONDS_MAX = 6.0  # After the end of a lease: the sweeper's interval, and its own time.
CHUNK = 1_000


async def test_a_mail_of_a_killed_worker_is_sent_again_with_its_message_id(
    dsn: str, *, forks: ForkServer, tmp_path: Path
) -> None:
    """The relay had the message and its reply was lost: the one case in which a mail is doubled."""
    async with (
        serving(SmtpServer()) as server,
        Penstock(dsn=dsn, domains=[mail.DOMAIN]) as app,
        started_workers(dsn, forks=forks, folder=tmp_path) as workers,
    ):
        relay = SmtpRelay(name="main", host=HOST, port=server.port, tls="none")
        async with app.pool.acquire() as db:
            await put_relay(db, relay, vault=VAULT, who="test")
            await set_lane(db, "penstock.mail", who="test", lease=timedelta(seconds=1))
        server.on("DOT", hang=True)
        mail_id = (await app.api(Mailer).send(a_mail(ADA))).id

        async def has_message() -> bool:
            return bool(server.messages)

        await workers.start()
        await until(has_message, within=PATIENCE)
        await workers.kill(workers.running[0])

        async def is_sent() -> bool:
            return (await read_mail(app.pool, mail_id)).status == "sent"

        await workers.start()
        await until(is_sent, within=PATIENCE)
        workers.running[0].send(signal.SIGTERM)
        assert await workers.running[0].wait() == 0

        lost, sent = server.messages
        assert lost.content == sent.content
        assert (await read_mail(app.pool, mail_id)).retry_count == 1


@dataclass(slots=True, kw_only=True)
class Workers:
    """The running workers, and how to start one."""

    forks: ForkServer
    folder: Path
    dsn: str
    started: int = 0
    running: list[Child] = field(default_factory=list[Child])

    async def start(self) -> None:
        """Start one, and return once it works."""
        environment = {"PENSTOCK_DATABASE_URL": self.dsn, "PENSTOCK_DOMAINS": "mail"}
        self.started += 1
        worker = await self.forks.start(
            *("penstock.cli", "worker"),
            log=self.folder / f"worker-{self.started}.log",
            environment=clean_environment(environment),
            folder=self.folder,
        )
        self.running.append(worker)
        await worker.until_logged("penstock works on", within=PATIENCE)

    async def kill(self, worker: Child) -> None:
        self.running.remove(worker)
        await worker.end()


@asynccontextmanager
async def started_workers(dsn: str, *, forks: ForkServer, folder: Path) -> AsyncGenerator[Workers]:
    """Kill the workers that still run at the end."""
    workers = Workers(forks=forks, folder=folder, dsn=dsn)
    try:
        yield workers
    finally:
        for worker in list(workers.running):
            await workers.kill(worker)


@pytest.mark.timeout(1200)
async def test_nobody_is_missed_when_workers_are_killed(
    dsn: str, *, forks: ForkServer, tmp_path: Path
) -> None:
    """A second copy has the Message-ID of the first, and follows a final reply that was lost."""
    chance = random.Random(SEED)
    overdue: list[float] = [0.0]
    async with serving(SmtpServer()) as server, Penstock(dsn=dsn, domains=[mail.DOMAIN]) as app:
        relay = SmtpRelay(name="main", host=HOST, port=server.port, tls="none")
        async with app.pool.acquire() as db:
            await put_relay(db, relay, vault=VAULT, who="test")
            await set_lane(
                db, "penstock.mail", who="test", lease=LEASE, max_attempts=50,
                backoff_base=timedelta(milliseconds=50),
            )  # fmt: skip
        recipients: dict[int, frozenset[str]] = {}
        server.on("DOT", drop=True, times=LOST_REPLIES)

        async def has_sent(count: int) -> bool:
            return len(server.messages) >= count

        async def has_reached(count: int) -> bool:
            return server.steps["DOT"] >= count

        async with (
            started_workers(dsn, forks=forks, folder=tmp_path) as workers,
            alongside(watch_leases(app.pool, overdue)),
        ):
            for _ in range(WORKERS):
                await workers.start()
            for _ in range(KILLS):
                server.on("DOT", hang=True, times=HUNG_REPLIES)
                hung_at = server.steps["DOT"] + LOST_REPLIES + HUNG_REPLIES
                recipients |= await accept_mails(app, MAILS // (KILLS + 1))
                await until(partial(has_reached, hung_at), within=PATIENCE)
                await workers.kill(chance.choice(workers.running))
                server.drop_connections()
                await workers.start()
            recipients |= await accept_mails(app, MAILS - len(recipients))
            await until(partial(has_sent, MAILS), within=600.0)
            await until(partial(is_drained, app.pool), within=PATIENCE)

        await assert_everybody_was_reached(app.pool, recipients)
        doubles = await assert_doubles_follow_lost_attempts(app.pool, server, recipients)
    stuck = max(overdue)
    assert stuck <= STUCK_SECONDS_MAX or MAILS < MAILS_FULL
    print(
        f"PENSTOCK_FAULT_SEED={SEED} PENSTOCK_FAULT_MAILS={MAILS} PENSTOCK_FAULT_KILLS={KILLS}: "
        f"{doubles} second copies, dispatching at most {stuck:.1f} s after the end of a lease"
    )


async def accept_mails(app: Penstock, count: int) -> dict[int, frozenset[str]]:
    """Accept mails, every tenth of them with two recipients; return these by mail."""
    mailer = app.api(Mailer)
    accepted: dict[int, frozenset[str]] = {}
    for start in range(0, count, CHUNK):
        to = [
            [f"{name}@example.org" for name in ("ada", "ben")[: 1 + (number % 10 == 0)]]
            for number in range(start, min(start + CHUNK, count))
        ]
        prepared = [await mailer.prepare(a_mail(*each)) for each in to]
        async with app.pool.acquire() as db, db.transaction():
            ids = [each.id for each in await send_prepared(db, prepared)]
        accepted |= {mail_id: frozenset(each) for mail_id, each in zip(ids, to, strict=True)}
    return accepted


async def watch_leases(pool: Pool, overdue: list[float]) -> None:
    """Note for how long the mails of a lease that is over were still `dispatching`."""
    while True:
        overdue.append(
            await pool.fetchval(
                "SELECT coalesce(extract(epoch FROM max(now() - expires_at)), 0)::float8 "
                "FROM penstock.lease"
            )
        )
        await pause(0.1)


async def is_drained(pool: Pool) -> bool:
    counted = await balance(pool)
    assert counted.is_even, counted
    return counted.done == counted.accepted


async def assert_everybody_was_reached(pool: Pool, recipients: dict[int, frozenset[str]]) -> None:
    rows = await pool.fetch("SELECT mail_id, result FROM penstock.mail_result")
    counted = Counter(row["mail_id"] for row in rows)
    assert {row["result"] for row in rows} == {"sent"}
    assert counted == {mail_id: len(each) for mail_id, each in recipients.items()}
    assert await pool.fetchval("SELECT count(*) FROM penstock.lease") == 0
    statuses = "SELECT DISTINCT status FROM penstock.mail_outbox WHERE id = ANY ($1)"
    some = list(recipients)[:: max(1, MAILS // 400)]
    assert [row["status"] for row in await pool.fetch(statuses, some)] == ["sent"]


async def assert_doubles_follow_lost_attempts(
    pool: Pool, server: SmtpServer, recipients: dict[int, frozenset[str]]
) -> int:
    """Return how many copies were too many."""
    copies: dict[int, list[frozenset[str]]] = defaultdict(list)
    contents: dict[int, set[bytes]] = defaultdict(set)
    for each in server.messages:
        message_id = each.content.split(b"Message-ID: <")[1].split(b">")[0]
        mail_id = int(message_id.split(b".")[0])
        copies[mail_id].append(frozenset(each.recipients))
        contents[mail_id].add(each.content)
    rows = await pool.fetch(
        "SELECT item_id, count(*) AS attempts FROM penstock.attempt "
        "WHERE outcome IN ('lost', 'retry') GROUP BY item_id"
    )
    unfinished = {row["item_id"]: row["attempts"] for row in rows}

    assert copies.keys() == recipients.keys()
    assert {len(each) for each in contents.values()} == {1}, "a second copy differs from the first"
    for mail_id, sent in copies.items():
        assert frozenset().union(*sent) == recipients[mail_id]
        assert len(sent) <= 1 + unfinished.get(mail_id, 0)
    doubles = sum(len(sent) - 1 for sent in copies.values())
    assert doubles >= LOST_REPLIES + KILLS
    return doubles
