"""One lane in one worker process: a loop that claims and a loop that settles.

Each has its own connection, so the server claims one batch and settles another while the handlers
of a third run: one loop for both left either the server or the handlers idle. Another loop promotes
followers that a settle had to leave.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic

import asyncpg

from penstock.base.aio import spawn
from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.kernel import metrics
from penstock.kernel.blocking import THREADS_MAX
from penstock.kernel.claim import Cursor, Lease, SlotRange, claim
from penstock.kernel.executor import RETURNED, Executor
from penstock.kernel.fence import LeaseFence
from penstock.kernel.history import with_history
from penstock.kernel.item import Returned
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane
from penstock.kernel.lease import EndedBatch, HeldLeases
from penstock.kernel.limit_key import StartGate
from penstock.kernel.preload import preload
from penstock.kernel.promote import promote_vacated
from penstock.kernel.settle import Settled, settle
from penstock.kernel.wake import Wake
from penstock.postgres.clock import DatabaseClock
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, Pool, database_away

# A worker holds no more unstarted items than it can start in this time: other workers cannot
# claim them, and a crash delays them.
PREFETCH = timedelta(milliseconds=500)
# While it has work, a lane does not claim for every single item that ends.
CLAIM_INTERVAL = timedelta(milliseconds=10)
# An emptied lane claims again at a notification or a due instant. If these come all the time, the
# items of this interval are claimed together.
NOTIFY_INTERVAL = timedelta(milliseconds=5)
# Most producers commit within this time. After these tries, the sweeper looks for the key.
PROMOTE_INTERVAL = timedelta(milliseconds=20)
PROMOTE_TRIES = 25
RECONNECT_DELAY = timedelta(seconds=1)  # A restart of PostgreSQL takes about as long.


@dataclass(slots=True)
class LaneRunner:
    """The loops of one lane. The worker passes them policies and notifications."""

    pool: Pool
    kind: AnyKind
    lane: Lane
    worker: str
    gate: StartGate
    meter: Meter
    log: Logger
    clock: DatabaseClock
    wake: Wake = field(default_factory=Wake)  # Of the claim loop.
    cursor: Cursor = field(default_factory=Cursor)
    leases: HeldLeases = field(default_factory=HeldLeases)
    executor: Executor = field(init=False)
    _settles: Wake = field(default_factory=Wake)
    _promotes: Wake = field(default_factory=Wake)
    _promote_tries: int = 0  # Left for keys whose followers could not be promoted.
    _claimed_at: float = 0.0
    _notification_taken_at: float = 0.0
    _is_emptied: bool = False  # Whether the last claim took all that was due.
    _is_claiming: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        self.lane = self._limited(self.lane)
        self.executor = Executor(
            kind=self.kind,
            lane=self.lane,
            leases=self.leases,
            fence=LeaseFence(self.pool),
            gate=self.gate,
            log=self.log,
            on_free=self._freed,
            on_ended=self._settles.now,
        )

    async def run(self) -> None:
        """Run until stopped and all items are settled; waits while the database is unavailable.

        May be called again after a failure: the held leases are kept.
        """
        async with asyncio.TaskGroup() as group:
            self.executor.begin(group)
            spawn(group, self._repeat(lambda: self._claim_once(group), self.wake))
            spawn(group, self._repeat(self._settle_once, self._settles))
            spawn(group, self._repeat(self._promote_once, self._promotes))
        for wake in (self.wake, self._settles, self._promotes):
            wake.cancel()

    def polled(self, lane: Lane, *, due_in: float | None, is_behind: bool) -> None:
        """Apply the current policy, and claim when the first item is due.

        `is_behind`: the cursor was past that item, so only a rewind finds it.
        """
        self.lane = self._limited(lane)
        self.executor.apply(self.lane)
        if is_behind:
            self.cursor.rewind()
        if due_in is not None:
            self.wake.within(due_in)

    def _limited(self, lane: Lane) -> Lane:
        """Return the lane with no more concurrency than a plain function has threads."""
        if not self.kind.is_blocking or lane.concurrency <= THREADS_MAX:
            return lane
        return replace(lane, concurrency=THREADS_MAX)

    def stop(self, *, grace: timedelta) -> None:
        """Stop claiming, return the items that have not started; the others may run for `grace`."""
        self.executor.stop(grace=grace)
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in (self.wake, self._settles, self._promotes):
            wake.now()

    async def _repeat(self, once: Callable[[], Awaitable[bool]], wake: Wake) -> None:
        """Call `once` while it makes progress; else wait for `wake`, or return after a stop."""
        while True:
            try:
                progressed = await once()
            except (DatabaseAway, asyncpg.PostgresError) as failure:
                # Also a statement that was cancelled, or a trigger that raises: the handlers that
                # run have nothing to do with it.
                self.log.warning("cycle.failed", lane=self.lane.name, **describe(failure))
                wake.within(RECONNECT_DELAY.total_seconds())
                progressed = False
            # A claim under way may still return a lease, which must be settled.
            if self.executor.is_stopping and self.leases.is_empty() and not self._is_claiming:
                # The other loops may be waiting for this.
                self._wake_all()
                return
            if not progressed:
                await wake.wait()

    # ------------------------------------------------------------------------------- claiming

    def _freed(self) -> None:
        """Claim for a task that has become free, unless the lane is known to be empty."""
        if not self._is_emptied:
            self.wake.now()

    async def _claim_once(self, group: asyncio.TaskGroup) -> bool:
        """Claim as many items as there is room for; return whether more may be due now."""
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
            self.wake.is_notified, self._notification_taken_at = False, began_at
        was_rewinding = self.cursor.is_rewinding()
        with database_away():
            async with self.pool.acquire() as db:
                if self.kind.may_claim is not None and not await self.kind.may_claim(db):
                    self._is_emptied = True  # The worker's poll looks again.
                    return False
                found = await claim(
                    db,
                    self.lane.lane_id,
                    self.cursor,
                    limit=room,
                    worker=self.worker,
                    slots=SlotRange(delay=timedelta(seconds=self.executor.pace.delay)),
                    clock=self.clock,
                )
                if isinstance(found, Lease):
                    # The claim has committed: start the handlers before the connection is released.
                    self.executor.receive(await self._loaded(db, found), group)
        took = self._loop.time() - began_at
        self.meter.observe(metrics.CYCLE_SECONDS, took, lane=self.lane.name)
        if not was_rewinding:
            # An item committed late may be behind the cursor, and its notification is past.
            self.wake.within(self.cursor.rewind_at - monotonic())
        return self._has_more(found)

    def _has_more(self, found: Lease | float | None) -> bool:
        """Return whether more may be due now; otherwise schedule the next claim."""
        is_lease = isinstance(found, Lease)
        if is_lease:
            self.meter.count(metrics.CLAIMS, lane=self.lane.name)
            self.meter.count(metrics.CLAIMED, len(found.items), lane=self.lane.name)
        more_in = found.more_in if is_lease else found
        self._is_emptied = not is_lease or more_in != 0
        if self._is_emptied and more_in is not None:
            self.wake.within(max(more_in, NOTIFY_INTERVAL.total_seconds()))
        return not self._is_emptied

    async def _loaded(self, db: Connection, lease: Lease) -> Lease:
        """Return the lease with the history of its items, and what the kind preloads."""
        try:
            lease = await with_history(db, lease)
            if self.kind.preload is None:
                return lease
            return await preload(db, lease, self.kind, fence=self.executor.fence)
        except BaseException:
            # No other worker can claim these items before the lease expires.
            self.executor.give_back(lease)
            raise

    def _room(self) -> int:
        if self.executor.is_stopping or not self.lane.enabled:
            return 0
        on_hand = self.executor.on_hand()
        room = min(self._prefetch() - on_hand, self.lane.batch_size)
        if room <= 0:
            self._is_emptied = False  # The loop was woken and has not claimed.
            return 0
        claims_at = self._claims_at(room, on_hand)
        if self._loop.time() < claims_at:
            self.wake.by(claims_at)
            return 0
        return room

    def _claims_at(self, room: int, on_hand: int) -> float:
        """Return the earliest instant of the next claim, on the loop's clock."""
        if self.wake.is_notified and self._is_emptied:
            return self._notification_taken_at + NOTIFY_INTERVAL.total_seconds()
        if room < self.lane.batch_size and on_hand > 0:
            return self._claimed_at + CLAIM_INTERVAL.total_seconds()
        return 0.0

    def _prefetch(self) -> int:
        """Return how many items to hold: more than the concurrency if handlers are fast.

        Not where an item that waits here keeps other workers from a rate slot or a place.
        """
        if self.lane.rate is not None or self.lane.concurrency_total is not None:
            return self.lane.concurrency
        if self.lane.dispatch_interval or self.lane.jitter_window:
            # A whole batch, also beside handlers of the one before: how many end in a second
            # says nothing about handlers whose items wait for a cycle or their jitter.
            return self.lane.concurrency + self.lane.batch_size
        quick = int(self.executor.ended_per_second * PREFETCH.total_seconds())
        return max(self.lane.concurrency, min(2 * self.lane.batch_size, quick))

    # ------------------------------------------------------------------------------- settling

    async def _settle_once(self) -> bool:
        """Settle the lease that is due for it first; return whether there was one."""
        batch = self.leases.take_ended(monotonic())
        if not isinstance(batch, EndedBatch):
            if batch is not None:
                self._settles.by(batch)
            return False
        try:
            with database_away():
                settled = await self._settle(batch)
        except BaseException:
            # The commit may have succeeded; the fence makes a repeat harmless.
            self.leases.put_back(batch)
            raise
        self._close(batch, settled)
        return True

    async def _settle(self, batch: EndedBatch) -> Settled | None:
        lane, lease, ended, closes = self.lane, batch.held.lease, batch.ended, batch.closes
        record = self.kind.record
        async with self.pool.acquire() as db:
            if lane.ordering == "none" and record is None:
                # A single statement is its own transaction.
                return await settle(db, lane, lease, ended=ended, closes=closes)
            async with db.transaction():
                return await settle(
                    db, lane, lease, ended=ended, closes=closes, record_settled=record
                )

    def _close(self, batch: EndedBatch, settled: Settled | None) -> None:
        lane, token, ended = self.lane.name, batch.held.lease.token, batch.ended
        if settled is None:
            batch.held.lose()
            self.log.warning("lease.lost", lane=lane, token_id=token, item_count=len(ended))
        self.leases.mark_settled(batch)
        endings = Counter(type(each.ending) for each in ended)
        for state, count in self._states(endings, settled).items():
            self.meter.count(metrics.ATTEMPTS, count, lane=lane, state=state)
        took = [each.duration_ms for each in ended if each.ending is not RETURNED]
        self.meter.observe_all(metrics.LATENCY_MS, took, lane=lane)
        if settled is not None and settled.again_in is not None:
            self.wake.within(settled.again_in)
        if settled is not None and settled.has_vacated:
            self._promote_within_tries(PROMOTE_TRIES)
        if Returned in endings:
            self.cursor.rewind()
        frees_places = self.lane.concurrency_total is not None
        if Returned in endings or self.lane.ordering == "per_key" or frees_places:
            self.wake.now()  # Returned or promoted items, or those without a place, may be due.

    def _states(self, endings: Counter[type], settled: Settled | None) -> Counter[str]:
        """Return the attempts by outcome, or by the states that the domain gives them.

        A late result has no state of a domain: it counts the attempt when it records it as lost.
        """
        states = Counter({ending.__name__.lower(): count for ending, count in endings.items()})
        if settled is None:
            return states if self.kind.record is None else Counter()
        if settled.states is None:
            return states
        returned = Returned.__name__.lower()  # Not attempts: no domain records them.
        return Counter(settled.states) + Counter({returned: states[returned]})

    # ------------------------------------------------------------------------------- promoting

    async def _promote_once(self) -> bool:
        """Promote followers that their producer had not committed yet when their head ended."""
        tries, self._promote_tries = self._promote_tries, 0
        if not tries:
            return False
        with database_away():
            async with self.pool.acquire() as db:
                promoted = await promote_vacated(db, lane_id=self.lane.lane_id)
        if promoted.keys:
            self.cursor.rewind()
            self.wake.now()
        if promoted.keys_left:
            self._promote_within_tries(tries - 1)
        return False

    def _promote_within_tries(self, tries: int) -> None:
        self._promote_tries = max(self._promote_tries, tries)
        self._promotes.within(PROMOTE_INTERVAL.total_seconds())
