"""A worker process: one runner per lane, LISTEN, one poll for all lanes, lease renewal, its row."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from secrets import token_hex
from time import monotonic
from typing import Any

import asyncpg

from penstock.base.aio import alongside, spawn, supervise
from penstock.base.clock import boot_seconds
from penstock.base.log import Logger, describe
from penstock.base.loop_watch import watch_loop
from penstock.base.meter import Meter
from penstock.kernel import metrics
from penstock.kernel.heartbeat import HEARTBEAT_INTERVAL, remove_worker, report_worker
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane, read_lane, to_lane
from penstock.kernel.limit_key import StartGate
from penstock.kernel.runner import LaneRunner
from penstock.postgres.clock import OFFSET_MAX, DatabaseClock
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.listen import listen
from penstock.postgres.pool import Pool, Row, database_away, keep_trying
from penstock.postgres.statement import statement

POLL = statement(__package__, "poll.sql")
EXTEND_LEASES = statement(__package__, "extend_leases.sql")

CHANNEL = "penstock"
POLICY_CHANGED = "policy"
POLL_INTERVAL = timedelta(seconds=1)
SETTLE_GRACE = timedelta(seconds=5)  # A hundred times the duration of a settle.
RENEWAL_SHARE = 3  # A lease is renewed after a third of its duration: two renewals may fail.
RENEWAL_CHECK = timedelta(milliseconds=250)  # A quarter of the shortest lease.

LOOK_FOR_LANES = timedelta(seconds=5)  # That rows of a domain name.
BLOCKED_MAX = timedelta(seconds=30)  # Of a worker without lanes; a third of it, as of a lease.


@dataclass(slots=True, kw_only=True)
class Worker:
    """Runs the items of `kinds` until stopped. Many workers may run on one database.

    `find_kinds` returns those of lanes that are found in the database, also while the worker runs.
    """

    dsn: str
    pool: Pool
    kinds: Sequence[AnyKind]
    gate: StartGate
    log: Logger
    meter: Meter = field(default_factory=Meter)
    clock: DatabaseClock = field(default_factory=DatabaseClock)
    name: str = field(
        default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
    )
    poll_interval: timedelta = POLL_INTERVAL
    grace: timedelta = timedelta(seconds=20)
    hears_notifications: bool = True
    find_kinds: Callable[[], Awaitable[Sequence[AnyKind]]] | None = None
    _runners: dict[int, LaneRunner] = field(default_factory=dict)
    _repoll: asyncio.Event = field(default_factory=asyncio.Event)
    _is_clock_off: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then finish what is in flight within the grace.

        Items that have not started are returned at once; handlers that exceed the grace are
        cancelled and settled as unknown.
        """
        for kind in self.kinds:
            await self._add_runner(kind)
        self.log.info("worker.started", worker=self.name, lane_count=len(self._runners))
        watchers = [self._poll_forever(), self._extend_forever(), self._report_forever()]
        if self.hears_notifications:
            watchers.append(self._listen())
        try:
            with watch_loop(self._blocked_limit, self._log_blocked):
                async with alongside(*watchers):
                    await self._run_lanes(stop)
            await self._report(remove_worker(self.pool, self.name))
        except TimeoutError:
            self.log.error(
                "worker.abandoned", worker=self.name, reason="the database is unavailable"
            )
        self.log.info("worker.stopped", worker=self.name)

    async def _add_runner(self, kind: AnyKind) -> LaneRunner:
        # The database may restart while a worker starts; that must not end it.
        lane = await keep_trying(
            lambda: read_lane(self.pool, kind.lane), dsn=self.dsn, log=self.log
        )
        self._runners[lane.lane_id] = runner = LaneRunner(
            pool=self.pool,
            kind=kind,
            lane=lane,
            worker=self.name,
            gate=self.gate,
            meter=self.meter,
            log=self.log.bind(lane=lane.name),
            clock=self.clock,
        )
        return runner

    async def _run_lanes(self, stop: asyncio.Event) -> None:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            for runner in self._runners.values():
                self._start(runner, group)
            async with alongside(
                # The lanes that run must not stop because others cannot be read.
                supervise(lambda: self._find_lanes(group), name="find lanes", log=self.log)
            ):
                await stop.wait()
            self.log.info("worker.stop_requested", worker=self.name)
            for runner in self._runners.values():
                runner.stop(grace=self.grace)
            # Without a database nothing can be settled; the leases expire by themselves.
            limit.reschedule(
                asyncio.get_running_loop().time() + (self.grace + SETTLE_GRACE).total_seconds()
            )

    def _start(self, runner: LaneRunner, group: asyncio.TaskGroup) -> None:
        name = f"lane {runner.lane.name}"
        spawn(group, supervise(runner.run, name=name, log=self.log), name=name)
        runner.wake.now()

    async def _find_lanes(self, group: asyncio.TaskGroup) -> None:
        """Run lanes that the database names, and those that it names later."""
        if self.find_kinds is None:
            return
        while True:
            try:
                with database_away():
                    for kind in await self.find_kinds():
                        if kind.lane not in {each.name for each in self.lanes}:
                            self._start(await self._add_runner(kind), group)
                            self.log.info("lane.found", worker=self.name, lane=kind.lane)
            except DatabaseAway as away:
                self.log.warning("poll.failed", worker=self.name, reason=away.reason)
            await asyncio.sleep(LOOK_FOR_LANES.total_seconds())

    def _blocked_limit(self) -> timedelta:
        """Return for how long the loop may be blocked: a renewal is late then."""
        leases = (runner.lane.lease for runner in self._runners.values())
        return min(leases, default=BLOCKED_MAX) / RENEWAL_SHARE

    def _log_blocked(
        self, task: "asyncio.Task[Any] | None", blocked_seconds: float, where: str
    ) -> None:
        line: dict[str, Any] = {"blocked_seconds": round(blocked_seconds, 3), "where": where}
        for runner in self._runners.values():
            if runner.executor.runs_in(task):
                line |= {"lane": runner.lane.name, "handler": runner.kind.handler_name}
        self.log.warning("loop.blocked", worker=self.name, **line)

    async def _listen(self) -> None:
        await listen(self.dsn, CHANNEL, self._notified, on_connect=self._wake_all, log=self.log)

    def _notified(self, payload: str) -> None:
        """Wake the lane that has new items, or read all policies again if one has changed."""
        self.meter.count(metrics.WAKE_UPS)
        if payload == POLICY_CHANGED:
            self._repoll.set()
        elif payload.isdigit() and (runner := self._runners.get(int(payload))):
            runner.wake.notified()

    def _wake_all(self) -> None:
        for runner in self._runners.values():
            runner.wake.now()

    async def _poll_forever(self) -> None:
        while True:
            try:
                await self._poll()
            except (DatabaseAway, asyncpg.PostgresError) as failure:
                self.log.warning("poll.failed", worker=self.name, **describe(failure))
            try:
                async with asyncio.timeout(self.poll_interval.total_seconds()):
                    await self._repoll.wait()
            except TimeoutError:
                continue
            self._repoll.clear()

    async def _poll(self) -> None:
        """Read every lane's policy and its next due instant, in one statement."""
        if not self._runners:
            return
        names = [runner.lane.name for runner in self._runners.values()]
        # As of now: claims made meanwhile move the cursor past items that the poll still sees.
        cursors = {id_: runner.cursor.position for id_, runner in self._runners.items()}
        with database_away():
            async with self.pool.acquire() as db:
                sent_at = monotonic()
                rows = await db.fetch(POLL, names)
                read_at = monotonic()
        for row in rows:
            lane_id, due_in = row["lane_id"], row["due_in"]
            first = (row["first_due_at"], row["first_id"])
            is_behind = due_in is not None and first <= cursors[lane_id]
            self._runners[lane_id].polled(to_lane(row), due_in=due_in, is_behind=is_behind)
        if rows:
            self._observe_clock(rows[-1], sent_at=sent_at, read_at=read_at)

    def _observe_clock(self, row: Row, *, sent_at: float, read_at: float) -> None:
        """Learn the database's clock; warn when this machine's is further off than the limit."""
        self.clock.observe(
            sent_at=sent_at,
            received_at=row["received_at"],
            answered_at=row["answered_at"],
            read_at=read_at,
        )
        offset = self.clock.offset or 0.0
        is_off, was_off = abs(offset) > OFFSET_MAX.total_seconds(), self._is_clock_off
        self._is_clock_off = is_off
        if is_off and not was_off:
            self.log.warning("clock.differed", worker=self.name, offset_seconds=round(offset, 3))

    async def _extend_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_CHECK.total_seconds())
            try:
                await self._extend()
            except (DatabaseAway, asyncpg.PostgresError) as failure:
                self.log.warning("renewal.failed", worker=self.name, **describe(failure))

    async def _extend(self) -> None:
        """Renew the leases that are a third over; mark those that the database no longer has."""
        now = boot_seconds()
        aging = {
            token: held
            for runner in self._runners.values()
            for token, held in runner.leases.to_renew(
                runner.lane.lease / RENEWAL_SHARE, now=now
            ).items()
        }
        if not aging:
            return
        with database_away():
            rows = await self.pool.fetch(EXTEND_LEASES, list(aging), None)
        kept = {row["token"] for row in rows}
        for token, held in aging.items():
            if token in kept:
                held.renew(now)
            else:
                held.lose()

    async def _report_forever(self) -> None:
        """Update this worker's row; in its own task, so that a lock on it delays no renewal."""
        while True:
            lanes = sorted(runner.lane.name for runner in self._runners.values())
            await self._report(report_worker(self.pool, self.name, lanes))
            await asyncio.sleep(HEARTBEAT_INTERVAL.total_seconds())

    async def _report(self, work: Coroutine[Any, Any, None]) -> None:
        """Write or delete this worker's row; a failure is logged, since no item depends on it."""
        try:
            async with asyncio.timeout(SETTLE_GRACE.total_seconds()):
                with database_away():
                    await work
        except (DatabaseAway, asyncpg.PostgresError, TimeoutError) as failure:
            self.log.warning("heartbeat.failed", worker=self.name, **describe(failure))

    @property
    def lanes(self) -> list[Lane]:
        """The policies that this worker read last."""
        return [runner.lane for runner in self._runners.values()]
