"""The handlers of one lane at work in this process: what is held, what runs, what has ended.

Touches no database: the runner brings leases and takes away what has ended.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace

from penstock.base.aio import spawn
from penstock.base.watchdog import Guard, Watchdog
from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.execute import execute, execute_many
from penstock.kernel.item import Dead, Ending, Returned
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane
from penstock.kernel.pace import Pace
from penstock.kernel.settle import Ended

RETURNED = Returned()
EXPIRED = Dead("expired")

# Settling part of a lease rewrites its row, so results of slow handlers wait for company this long.
LINGER = timedelta(milliseconds=20)
# The rate of items ended is measured over stretches of at least this length.
MEASURE = timedelta(milliseconds=50)
# The claim keeps so much of each second back for starts that are late. What is later than that
# would start together with those whose slots come next, in whatever process: it is given back for
# another slot. A process that is always late must not stand still: after so many, one starts.
LATE_MAX = timedelta(milliseconds=30)
LATE_RETURNS = 3
# Handlers that never wait would keep the loop to themselves for a whole batch, and the database
# idle meanwhile: after this many items the loop may answer it.
BREATH = 20


@dataclass(slots=True)
class OpenLease:
    """A lease with items that are not settled yet. Instants are of the loop's clock."""

    lease: Lease
    claimed_at: float  # The lease's own `claimed_at`, as near as we know.
    renewed_at: float
    unsettled: int
    ended: list[Ended] = field(default_factory=list)
    ended_first_at: float = 0.0
    is_lost: bool = False

    def ripe_at(self) -> float:
        """Return when what has ended is to be settled: at once if it is all there is."""
        if len(self.ended) == self.unsettled:
            return self.ended_first_at
        return self.ended_first_at + LINGER.total_seconds()


@dataclass(slots=True, kw_only=True)
class Crew:
    """Runs the items of leases, up to the lane's concurrency at once.

    `on_free` is called when a strand has nothing left to do, `on_ended` when something may be
    settled; neither may block.
    """

    kind: AnyKind
    lane: Lane
    on_free: Callable[[], None]
    on_ended: Callable[[], None]
    leases: dict[int, OpenLease] = field(default_factory=dict)
    is_stopping: bool = False
    ended_per_second: float = 0.0
    _waiting: deque[tuple[OpenLease, Claimed]] = field(default_factory=deque)
    _strands: set[asyncio.Task[None]] = field(default_factory=set)
    _running: int = 0
    _is_starting: bool = False
    _measured_at: float = 0.0
    _measured: int = 0
    _pace: Pace = field(default_factory=Pace)
    _late_returns: int = 0
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _watchdog: Watchdog = field(init=False)
    _unknown: Ending = field(init=False)

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.kind.timeout)
        self._unknown = self.kind.when_unknown("the worker stopped before the handler had ended")

    def on_hand(self) -> int:
        """Return how many items are held that have not ended."""
        return len(self._waiting) + self._running

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Go on with what is held; the strands of an earlier group are gone."""
        self._running, self._is_starting = 0, False
        self._start_another(group)

    def receive(self, lease: Lease, group: asyncio.TaskGroup) -> None:
        """Take a lease whose claim has committed, and start with its items."""
        opened = self._open(lease)
        self._waiting.extend((opened, claimed) for claimed in self.in_starting_order(lease))
        if self.is_stopping:
            self._give_back_waiting()
        self._start_another(group)

    def give_back(self, lease: Lease) -> None:
        """Take a lease whose claim has committed, only to give its items back untried."""
        opened = self._open(lease)
        for claimed in lease.items:
            self._end(opened, claimed, RETURNED, began_at=self._loop.time())

    def _open(self, lease: Lease) -> OpenLease:
        claimed_at = self._loop.time() - lease.age
        opened = OpenLease(
            lease, claimed_at=claimed_at, renewed_at=claimed_at, unsettled=len(lease.items)
        )
        self.leases[lease.token] = opened
        return opened

    def stop(self, *, grace: timedelta) -> None:
        """Give back what was not started, and let the rest run for `grace`."""
        self.is_stopping = True
        self._stopped.set()
        self._give_back_waiting()
        self._loop.call_later(grace.total_seconds(), self._cancel_strands)

    def in_starting_order(self, lease: Lease) -> list[Claimed]:
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

    def _give_back_waiting(self) -> None:
        while self._waiting:
            opened, claimed = self._waiting.popleft()
            self._end(opened, claimed, RETURNED, began_at=self._loop.time())

    def _cancel_strands(self) -> None:
        for strand in self._strands:
            strand.cancel()

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
        guard = self._watchdog.guard()
        try:
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
            self.on_free()

    async def _run_one(self, opened: OpenLease, claimed: Claimed, guard: Guard) -> None:
        if claimed.start_in > 0 or self.lane.rate is not None:
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
        start_in = max(first.start_in, self._loop.time() - opened.claimed_at)
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
            await self._until(opened.claimed_at + claimed.start_in)
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
        if self.lane.rate is not None and self._has_missed_slot(opened, claimed, now):
            return RETURNED
        if claimed.not_after is None:
            return None
        elapsed = now - opened.claimed_at
        is_late = opened.lease.claimed_at + timedelta(seconds=elapsed) > claimed.not_after
        return EXPIRED if is_late else None

    def _has_missed_slot(self, opened: OpenLease, claimed: Claimed, now: float) -> bool:
        """Say whether an item comes too late for its slot and is to take another one."""
        if opened.lease.items[-1].start_in <= 0:
            return False  # The burst was enough for all: nothing comes next that would add to it.
        late = now - opened.claimed_at - max(claimed.start_in, 0.0)
        if late <= LATE_MAX.total_seconds() or self._late_returns == LATE_RETURNS:
            self._late_returns = 0
            return False
        self._late_returns += 1
        return True

    def _end(self, opened: OpenLease, claimed: Claimed, ending: Ending, *, began_at: float) -> None:
        now = self._loop.time()
        if not opened.ended:
            opened.ended_first_at = now
        opened.ended.append(Ended(claimed, ending, int((now - began_at) * 1000)))
        self._measured += 1
        if now - self._measured_at > MEASURE.total_seconds():
            self.ended_per_second = self._measured / (now - self._measured_at)
            self._measured_at, self._measured = now, 0
        if len(opened.ended) == opened.unsettled or len(opened.ended) == 1:
            self.on_ended()
