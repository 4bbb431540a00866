"""One lane in one worker process: claim ahead, run the items, settle what has ended.

The cycle (settle, then claim, in one transaction) overlaps with the handlers of the batch before.
"""

import asyncio
import random
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from msgspec.structs import replace

from penstock.base.aio import spawn
from penstock.base.errors import DatabaseAway
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.base.watchdog import Guard, Watchdog
from penstock.kernel.claim import Claimed, Cursor, Lease, claim
from penstock.kernel.execute import execute, execute_many
from penstock.kernel.item import Dead, Ending, Returned
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane
from penstock.kernel.pace import Pace
from penstock.kernel.settle import Ended, settle
from penstock.kernel.wake import Wake
from penstock.postgres.pool import Connection, Pool, database_away

RETURNED = Returned()
EXPIRED = Dead("expired")

# Settling part of a lease rewrites its row, so results of slow handlers wait for company this long.
LINGER = timedelta(milliseconds=20)
# A worker holds no more unstarted items than it can start in this time: what it holds, others
# cannot take, and a crash delays.
STOCK = timedelta(milliseconds=500)
# While it has work, a lane does not claim for every single item that ends.
CLAIM_PAUSE = timedelta(milliseconds=10)
# Rate of items ended is measured over stretches of at least this length.
MEASURE = timedelta(milliseconds=50)
# Handlers that never wait would keep the loop to themselves for a whole batch, and the database
# idle meanwhile: after this many items the loop may answer it.
BREATH = 20


@dataclass(slots=True)
class OpenLease:
    """A lease with items that are not settled yet."""

    lease: Lease
    received_at: float  # The loop's clock when the claim had committed.
    unsettled: int
    ended: list[Ended] = field(default_factory=list)
    ended_first_at: float = 0.0
    renewed_at: float = 0.0
    is_lost: bool = False


@dataclass(slots=True)
class Runner:
    """The state of one lane in this process. `run` is its loop; the worker feeds `lane`."""

    pool: Pool
    kind: AnyKind
    lane: Lane
    worker: str
    meter: Meter
    log: Logger
    wake: Wake = field(default_factory=Wake)
    cursor: Cursor = field(default_factory=Cursor)
    leases: dict[int, OpenLease] = field(default_factory=dict)
    is_stopping: bool = False
    _pace: Pace = field(default_factory=Pace)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: deque[tuple[OpenLease, Claimed]] = field(default_factory=deque)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _strands: set[asyncio.Task[None]] = field(default_factory=set)
    _running: int = 0
    _is_starting: bool = False
    _claimed_at: float = 0.0
    _ended_per_second: float = 0.0
    _measured_at: float = 0.0
    _measured: int = 0
    _watchdog: Watchdog = field(init=False)
    _unknown: Ending = field(init=False)

    async def run(self) -> None:
        """Run until `is_stopping` and everything is settled; a lost database is waited for.

        May be called again after a failure: what this process holds is still known.
        """
        self._running, self._is_starting = 0, False
        async with asyncio.TaskGroup() as group:
            self._start_another(group)
            while not (self.is_stopping and not self.leases):
                try:
                    progressed = await self._cycle(group)
                except DatabaseAway as away:
                    self.log.warning("cycle.failed", lane=self.lane.name, reason=away.reason)
                    self.wake.within(1.0)
                    progressed = False
                if not progressed:
                    await self.wake.wait()
        self.wake.cancel()

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.kind.timeout)
        self._unknown = self.kind.when_unknown("the worker stopped before the handler had ended")

    def polled(self, lane: Lane, *, due_in: float | None, began_at: float) -> None:
        """Take the policy as it is now, and look for work when the next item is due."""
        self.lane = lane
        if due_in is None:
            self.cursor.advance(None, began_at=began_at)
        else:
            self.wake.within(due_in)

    def stop(self, *, grace: timedelta) -> None:
        """Claim no more, give back what was not started, and let the rest run for `grace`."""
        self.is_stopping = True
        self._stopped.set()
        while self._waiting:
            opened, claimed = self._waiting.popleft()
            self._end(opened, claimed, RETURNED, began_at=self._loop.time())
        self._loop.call_later(grace.total_seconds(), self._cancel_strands)
        self.wake.now()

    def _cancel_strands(self) -> None:
        for strand in self._strands:
            strand.cancel()

    # ------------------------------------------------------------------ the cycle: the database

    async def _cycle(self, group: asyncio.TaskGroup) -> bool:
        """Settle what has ended and claim what there is room for; say whether anything happened."""
        ripe = self._ripe()
        room = self._room()
        if not ripe and room <= 0:
            return False
        found: Lease | float | None = None
        taken = [(opened, opened.ended) for opened in ripe]
        for opened in ripe:
            opened.ended = []
        began_at = self._loop.time()
        try:
            with database_away():
                async with self.pool.acquire() as db:
                    if ripe:
                        async with db.transaction():
                            await self._settle(db, taken)
                            found = await self._claim(db, room)
                    else:
                        found = await self._claim(db, room)
        except BaseException:
            # The commit may have come through all the same; the fence makes a repeat harmless.
            for opened, ended in taken:
                opened.ended = ended + opened.ended
            raise
        self._close(taken)
        took = self._loop.time() - began_at
        self.meter.observe("dispatch_cycle_duration_seconds", took, lane=self.lane.name)
        if isinstance(found, Lease):
            self._receive(found, group)
            return True
        if found is not None:
            self.wake.within(max(found, 0.001))
        elif room > 0:
            # What was committed late may stand behind the cursor, and its notification is past.
            self.wake.within(self.cursor.rewind_at - monotonic())
        return bool(ripe)

    def _ripe(self) -> list[OpenLease]:
        """Return the leases to settle now: complete ones, and those whose results have waited."""
        now = self._loop.time()
        ripe: list[OpenLease] = []
        for opened in self.leases.values():
            if not opened.ended:
                continue
            ripe_at = opened.ended_first_at + LINGER.total_seconds()
            if len(opened.ended) == opened.unsettled or now >= ripe_at:
                ripe.append(opened)
            else:
                self.wake.by(ripe_at)
        return ripe

    def _room(self) -> int:
        if self.is_stopping or not self.lane.enabled:
            return 0
        on_hand = len(self._waiting) + self._running
        room = min(self._stock() - on_hand, self.lane.batch_size)
        if 0 < room < self.lane.batch_size and on_hand > 0:
            claims_at = self._claimed_at + CLAIM_PAUSE.total_seconds()
            if self._loop.time() < claims_at:
                self.wake.by(claims_at)
                return 0
        return room

    def _stock(self) -> int:
        """Return how many items to have on hand: more than can run at once if they are quick."""
        if self.lane.rate is not None:
            return self.lane.concurrency
        quick = int(self._ended_per_second * STOCK.total_seconds())
        return max(self.lane.concurrency, min(2 * self.lane.batch_size, quick))

    async def _settle(self, db: Connection, taken: list[tuple[OpenLease, list[Ended]]]) -> None:
        for opened, ended in taken:
            closes = len(ended) == opened.unsettled
            was_ours = await settle(db, self.lane, opened.lease, ended=ended, closes=closes)
            if not was_ours:
                opened.is_lost = True
                self.log.warning(
                    "lease.lost", lane=self.lane.name, token_id=opened.lease.token,
                    item_count=len(ended),
                )  # fmt: skip

    async def _claim(self, db: Connection, room: int) -> Lease | float | None:
        if room <= 0:
            return None
        self._claimed_at = self._loop.time()
        return await claim(db, self.lane.lane_id, self.cursor, limit=room, worker=self.worker)

    def _close(self, taken: list[tuple[OpenLease, list[Ended]]]) -> None:
        for opened, ended in taken:
            opened.unsettled -= len(ended)
            if opened.unsettled == 0:
                del self.leases[opened.lease.token]
            endings = Counter(type(each.ending) for each in ended)
            for ending, count in endings.items():
                state = ending.__name__.lower()
                self.meter.count("attempts_total", count, lane=self.lane.name, state=state)
            if Returned in endings:
                self.cursor.rewind()
            took = [each.duration_ms for each in ended if each.ending is not RETURNED]
            self.meter.observe_all("dispatch_latency_ms", took, lane=self.lane.name)

    def _receive(self, lease: Lease, group: asyncio.TaskGroup) -> None:
        now = self._loop.time()
        opened = OpenLease(lease, now, unsettled=len(lease.items), renewed_at=now)
        self.leases[lease.token] = opened
        self._waiting.extend((opened, claimed) for claimed in self._in_starting_order(lease))
        self.meter.count("claim_batches_total", lane=self.lane.name)
        self.meter.count("dispatch_batch_claimed_total", len(lease.items), lane=self.lane.name)
        self._start_another(group)

    def _in_starting_order(self, lease: Lease) -> list[Claimed]:
        """Spread the starts over the lane's jitter window; the earliest first.

        A rate has spread them already, and jitter on top of it could exceed it.
        """
        window = self.lane.jitter_window.total_seconds()
        if window == 0 or self.lane.rate is not None:
            return lease.items
        spread = (
            replace(claimed, start_in=claimed.start_in + random.uniform(0, window))  # noqa: S311
            for claimed in lease.items
        )
        return sorted(spread, key=lambda claimed: claimed.start_in)

    # ------------------------------------------------------------- the handlers: no database

    def _start_another(self, group: asyncio.TaskGroup) -> None:
        """Start one more strand if an item waits for one and none is about to look."""
        if self._waiting and not self._is_starting and self._running < self.lane.concurrency:
            self._is_starting = True
            self._running += 1
            strand = spawn(group, self._strand(group))
            self._strands.add(strand)
            strand.add_done_callback(self._strands.discard)

    async def _strand(self, group: asyncio.TaskGroup) -> None:
        """Run waiting items one after another until there are none.

        A strand starts the next one before it runs its item. So handlers that never wait share one
        task per batch, and handlers that do get one each, up to the lane's concurrency.
        """
        self._is_starting = False
        ran = 0
        try:
            with self._watchdog.guard() as guard:
                while self._waiting and self._running <= self.lane.concurrency:
                    opened, claimed = self._waiting.popleft()
                    self._start_another(group)
                    if self.kind.handle_many is not None:
                        await self._run_many(opened, claimed, guard)
                    else:
                        await self._run_one(opened, claimed, guard)
                    ran += 1
                    if ran % BREATH == 0:
                        await asyncio.sleep(0)
        finally:
            self._running -= 1
            self.wake.now()

    async def _run_one(self, opened: OpenLease, claimed: Claimed, guard: Guard) -> None:
        await self._until_start(opened, claimed)
        began_at = self._loop.time()
        refusal = self._refusal(opened, claimed)
        if refusal is not None:
            self._end(opened, claimed, refusal, began_at=began_at)
            return
        ending = self._unknown
        try:
            ending = await execute(claimed, self.kind, opened.lease.token, guard=guard)
        finally:
            self._end(opened, claimed, ending, began_at=began_at)

    async def _run_many(self, opened: OpenLease, first: Claimed, guard: Guard) -> None:
        """Run one batch handler on all of the same lease that may start with the first."""
        start_in = max(first.start_in, self._loop.time() - opened.received_at)
        batch = [first]
        while self._waiting and self._waiting[0][0] is opened:
            if self._waiting[0][1].start_in > start_in:
                break
            batch.append(self._waiting.popleft()[1])
        await self._until_start(opened, first)
        began_at = self._loop.time()
        refusals = {claimed.id: self._refusal(opened, claimed) for claimed in batch}
        wanted = [claimed for claimed in batch if refusals[claimed.id] is None]
        endings = {claimed.id: self._unknown for claimed in wanted}
        try:
            outcomes = await execute_many(wanted, self.kind, opened.lease.token, guard=guard)
            endings |= {item.id: outcome for item, outcome in zip(wanted, outcomes, strict=True)}
        finally:
            for claimed in batch:
                ending = refusals[claimed.id] or endings[claimed.id]
                self._end(opened, claimed, ending, began_at=began_at)

    async def _until_start(self, opened: OpenLease, claimed: Claimed) -> None:
        """Wait for the item's instant. A stop ends the wait, and the item is then given back."""
        if claimed.start_in > 0:
            await self._until(opened.received_at + claimed.start_in)
        if self.lane.rate is not None:
            now = self._loop.time()
            turn_at = self._pace.turn(now, rate=self.lane.rate, burst=self.lane.burst)
            if turn_at > now:
                await self._until(turn_at)

    async def _until(self, moment: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(moment):
                await self._stopped.wait()

    def _refusal(self, opened: OpenLease, claimed: Claimed) -> Ending | None:
        """Say how an item ends that must not be started: paused, given to another, or too late."""
        now = self._loop.time()
        # A worker that was stopped for long must not start what somebody else may have by now.
        is_lost = opened.is_lost or now - opened.renewed_at > self.lane.lease.total_seconds()
        if not self.lane.enabled or self.is_stopping or is_lost:
            return RETURNED
        if claimed.not_after is None:
            return None
        elapsed = now - opened.received_at
        is_late = opened.lease.claimed_at + timedelta(seconds=elapsed) > claimed.not_after
        return EXPIRED if is_late else None

    def _end(self, opened: OpenLease, claimed: Claimed, ending: Ending, *, began_at: float) -> None:
        now = self._loop.time()
        if not opened.ended:
            opened.ended_first_at = now
        opened.ended.append(Ended(claimed, ending, int((now - began_at) * 1000)))
        self._measured += 1
        if now - self._measured_at > MEASURE.total_seconds():
            self._ended_per_second = self._measured / (now - self._measured_at)
            self._measured_at, self._measured = now, 0
        if len(opened.ended) == opened.unsettled or len(opened.ended) == 1:
            self.wake.now()
