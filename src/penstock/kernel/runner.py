"""One lane in one worker process: a loop that claims ahead and a loop that settles behind.

They have a connection each, so the server claims one batch and settles another while the handlers
of a third run: one loop that did both in turn left either the server or the handlers idle.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from penstock.base.aio import spawn
from penstock.base.errors import DatabaseAway
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.crew import RETURNED, Crew, OpenLease
from penstock.kernel.gather import gather
from penstock.kernel.item import Returned
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane
from penstock.kernel.settle import Ended, Settled, settle
from penstock.kernel.wake import Wake
from penstock.postgres.pool import Connection, Pool, database_away

# A worker holds no more unstarted items than it can start in this time: what it holds, others
# cannot take, and a crash delays.
STOCK = timedelta(milliseconds=500)
# While it has work, a lane does not claim for every single item that ends.
CLAIM_PAUSE = timedelta(milliseconds=10)
# A lane that was emptied is looked at again as soon as there is news, or something is due. Where
# that is so all the time, what has come in this time is claimed in one go.
LOOK_PAUSE = timedelta(milliseconds=5)
AWAY_PAUSE = timedelta(seconds=1)  # A restart of PostgreSQL takes about as long.


@dataclass(slots=True)
class Runner:
    """The two loops of one lane. The worker feeds them policies and wake-ups."""

    pool: Pool
    kind: AnyKind
    lane: Lane
    worker: str
    meter: Meter
    log: Logger
    wake: Wake = field(default_factory=Wake)  # Of the claims.
    cursor: Cursor = field(default_factory=Cursor)
    crew: Crew = field(init=False)
    _settles: Wake = field(default_factory=Wake)
    _claimed_at: float = 0.0
    _news_taken_at: float = 0.0
    _is_emptied: bool = False  # Whether the last claim took all that was due.
    _is_claiming: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        self.crew = Crew(
            kind=self.kind, lane=self.lane, on_free=self._freed, on_ended=self._settles.now
        )

    async def run(self) -> None:
        """Run until it is stopped and everything is settled; a lost database is waited for.

        May be called again after a failure: what this process holds is still known.
        """
        async with asyncio.TaskGroup() as group:
            self.crew.begin(group)
            spawn(group, self._repeat(lambda: self._claim_once(group), self.wake))
            spawn(group, self._repeat(self._settle_once, self._settles))
        self.wake.cancel()
        self._settles.cancel()

    def polled(self, lane: Lane, *, due_in: float | None, began_at: float) -> None:
        """Take the policy as it is now, and look for work when the next item is due."""
        self.lane = self.crew.lane = lane
        if due_in is None:
            self.cursor.advance(None, began_at=began_at)
        else:
            self.wake.within(due_in)

    def stop(self, *, grace: timedelta) -> None:
        """Claim no more, give back what was not started, and let the rest run for `grace`."""
        self.crew.stop(grace=grace)
        self.wake.now()
        self._settles.now()

    async def _repeat(self, once: Callable[[], Awaitable[bool]], wake: Wake) -> None:
        """Call `once` as long as it gets anywhere; then wait to be woken, or end with the stop."""
        while True:
            try:
                progressed = await once()
            except DatabaseAway as away:
                self.log.warning("cycle.failed", lane=self.lane.name, reason=away.reason)
                wake.within(AWAY_PAUSE.total_seconds())
                progressed = False
            # A claim that is on its way may still bring a lease, which somebody has to settle.
            if self.crew.is_stopping and not self.crew.leases and not self._is_claiming:
                # The other loop may be waiting for just this.
                self.wake.now()
                self._settles.now()
                return
            if not progressed:
                await wake.wait()

    # ------------------------------------------------------------------------------- claiming

    def _freed(self) -> None:
        """Look for work for a strand that has none, unless there is known to be none."""
        if not self._is_emptied:
            self.wake.now()

    async def _claim_once(self, group: asyncio.TaskGroup) -> bool:
        """Claim what there is room for; say whether there may be more at once."""
        room = self._room()
        if room <= 0:
            return False
        self._is_claiming = True
        try:
            return await self._claim(room, group)
        finally:
            self._is_claiming = False

    async def _claim(self, room: int, group: asyncio.TaskGroup) -> bool:
        began_at = self._claimed_at = self._loop.time()
        if self.wake.is_notified:
            self.wake.is_notified, self._news_taken_at = False, began_at
        was_rewinding = self.cursor.is_rewinding()
        with database_away():
            async with self.pool.acquire() as db:
                found = await claim(
                    db, self.lane.lane_id, self.cursor, limit=room, worker=self.worker
                )
                if isinstance(found, Lease):
                    # It has committed: the first handler need not wait for the connection's return.
                    self.crew.receive(await self._gathered(db, found), group)
        took = self._loop.time() - began_at
        self.meter.observe("dispatch_cycle_duration_seconds", took, lane=self.lane.name)
        if not was_rewinding:
            # What was committed late may stand behind the cursor, and its notification is past.
            self.wake.within(self.cursor.rewind_at - monotonic())
        return self._has_more(found)

    def _has_more(self, found: Lease | float | None) -> bool:
        """Say whether there may be more at once; otherwise look again when there will be."""
        is_lease = isinstance(found, Lease)
        if is_lease:
            self.meter.count("claim_batches_total", lane=self.lane.name)
            self.meter.count("dispatch_batch_claimed_total", len(found.items), lane=self.lane.name)
        more_in = found.more_in if is_lease else found
        self._is_emptied = not is_lease or more_in != 0
        if self._is_emptied and more_in is not None:
            self.wake.within(max(more_in, LOOK_PAUSE.total_seconds()))
        return not self._is_emptied

    async def _gathered(self, db: Connection, lease: Lease) -> Lease:
        if self.kind.gather is None:
            return lease
        try:
            return await gather(db, lease, self.kind)
        except BaseException:
            # Nobody else can take these items before the lease is over.
            self.crew.give_back(lease)
            raise

    def _room(self) -> int:
        if self.crew.is_stopping or not self.lane.enabled:
            return 0
        on_hand = self.crew.on_hand()
        room = min(self._stock() - on_hand, self.lane.batch_size)
        if room <= 0:
            self._is_emptied = False  # Something woke us, and nobody has looked for it.
            return 0
        claims_at = self._claims_at(room, on_hand)
        if self._loop.time() < claims_at:
            self.wake.by(claims_at)
            return 0
        return room

    def _claims_at(self, room: int, on_hand: int) -> float:
        """Return when the next claim may be, by the loop's clock."""
        if self.wake.is_notified and self._is_emptied:
            return self._news_taken_at + LOOK_PAUSE.total_seconds()
        if room < self.lane.batch_size and on_hand > 0:
            return self._claimed_at + CLAIM_PAUSE.total_seconds()
        return 0.0

    def _stock(self) -> int:
        """Return how many items to have on hand: more than can run at once if they are quick."""
        if self.lane.rate is not None:
            return self.lane.concurrency
        quick = int(self.crew.ended_per_second * STOCK.total_seconds())
        return max(self.lane.concurrency, min(2 * self.lane.batch_size, quick))

    # ------------------------------------------------------------------------------- settling

    async def _settle_once(self) -> bool:
        """Settle the lease that has waited longest of those that are ripe; say if there was one."""
        opened = min(
            (each for each in self.crew.leases.values() if each.ended),
            key=OpenLease.ripe_at,
            default=None,
        )
        if opened is None:
            return False
        if opened.ripe_at() > self._loop.time():
            self._settles.by(opened.ripe_at())
            return False
        ended, opened.ended = opened.ended, []
        try:
            with database_away():
                settled = await self._settle(opened, ended)
        except BaseException:
            # The commit may have come through all the same; the fence makes a repeat harmless.
            opened.ended = ended + opened.ended
            raise
        self._close(opened, ended, settled)
        return True

    async def _settle(self, opened: OpenLease, ended: list[Ended]) -> Settled | None:
        closes = len(ended) == opened.unsettled
        async with self.pool.acquire() as db:
            if self.lane.ordering == "none":
                # One statement, which is a transaction of its own.
                return await settle(db, self.lane, opened.lease, ended=ended, closes=closes)
            async with db.transaction():
                return await settle(db, self.lane, opened.lease, ended=ended, closes=closes)

    def _close(self, opened: OpenLease, ended: list[Ended], settled: Settled | None) -> None:
        lane, token = self.lane.name, opened.lease.token
        if settled is None:
            opened.is_lost = True
            self.log.warning("lease.lost", lane=lane, token_id=token, item_count=len(ended))
        opened.unsettled -= len(ended)
        if opened.unsettled == 0:
            del self.crew.leases[token]
        endings = Counter(type(each.ending) for each in ended)
        for ending, count in endings.items():
            self.meter.count("attempts_total", count, lane=lane, state=ending.__name__.lower())
        took = [each.duration_ms for each in ended if each.ending is not RETURNED]
        self.meter.observe_all("dispatch_latency_ms", took, lane=lane)
        if settled is not None and settled.again_in is not None:
            self.wake.within(settled.again_in)
        if Returned in endings:
            self.cursor.rewind()
        if Returned in endings or self.lane.ordering == "per_key":
            self.wake.now()  # What was given back or has moved up may be due at once.
