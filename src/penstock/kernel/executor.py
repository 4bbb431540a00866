"""Run the handlers of one lane in this process, up to the lane's concurrency.

The runner claims the leases and settles what has ended; only start marks are written here.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.base.aio import TIMER_ROUNDING, finish, spawn
from penstock.base.clock import boot_seconds
from penstock.base.log import Logger
from penstock.base.watchdog import Guard, Watchdog
from penstock.kernel.blocking import StillRunning
from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.execute import execute, execute_many, watchdog_of
from penstock.kernel.failures import FailureLog
from penstock.kernel.fence import LeaseFence
from penstock.kernel.item import Dead, Ending, Returned, Snooze
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import Lane
from penstock.kernel.lease import HeldLease, HeldLeases
from penstock.kernel.limit_key import StartGate, StartRefused, limits_of, refusal_reason
from penstock.kernel.pace import Pace, tolerance
from penstock.kernel.settle import Ended
from penstock.postgres.errors import DatabaseAway

RETURNED = Returned()
EXPIRED = Dead("expired")

# The rate of ended items is measured over intervals of at least this length.
MEASURE_SECONDS = 0.05
# Handlers that never await would block the event loop for a whole batch, and the database would be
# idle meanwhile: yield to the loop after this many items.
YIELD_EVERY = 20
LEAVE_GRACE = timedelta(seconds=2)  # To return the places of limit keys after a cancellation.
# How late after its admission an item of a batch may start. A part that ran meanwhile took longer.
LATE_MAX = timedelta(milliseconds=5)


class _Arrival(NamedTuple):
    """An item that the gate has answered, and when; `admitted` is None if it was refused."""

    claimed: Claimed
    admitted: object | None
    at: float


@dataclass(slots=True, kw_only=True)
class Executor:
    """Runs the items of leases, up to the lane's concurrency at once.

    Instants are of the monotonic clock. The loop's own clock would not do: uvloop's does not
    advance while the loop runs handlers.

    `on_free` is called when a task has no item left to run, `on_ended` when a lease becomes due
    for settling sooner; neither may block.
    """

    kind: AnyKind
    lane: Lane
    leases: HeldLeases
    fence: LeaseFence
    gate: StartGate
    log: Logger
    on_free: Callable[[], None]
    on_ended: Callable[[], None]
    is_stopping: bool = False
    ended_per_second: float = 0.0
    pace: Pace = field(default_factory=Pace)
    _waiting: deque[tuple[HeldLease, Claimed]] = field(default_factory=deque)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _running: int = 0
    _is_starting: bool = False
    _measured_at: float = 0.0
    _measured: int = 0
    # Set while the worker stops or the lane is paused: nothing that waits for its start may start.
    _is_withheld: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _watchdog: Watchdog = field(init=False)
    _failures: FailureLog = field(init=False)
    _unknown: Ending = field(init=False)

    def __post_init__(self) -> None:
        self._watchdog = watchdog_of(self.kind, self.log)
        self._failures = FailureLog(self.log, self.kind, lambda: self.lane.error_detail)
        self._unknown = self.kind.when_unknown("the worker stopped before the handler had ended")

    def on_hand(self) -> int:
        """Return how many held items have not ended."""
        return len(self._waiting) + self._running

    def runs_in(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return whether a task runs handlers of this lane; safe to call from any thread."""
        return task in self._tasks

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Continue with the held items; the tasks of an earlier group are gone."""
        self._running, self._is_starting = 0, False
        self._start_another(group)

    def receive(self, lease: Lease, group: asyncio.TaskGroup) -> None:
        """Hold a lease whose claim has committed, and start its items."""
        held = self.leases.add(lease)
        self.pace.received(monotonic(), claimed_at=lease.began_at)
        self._waiting.extend((held, claimed) for claimed in self.in_starting_order(lease))
        if self.is_stopping:
            self._give_back_waiting()
        self._start_another(group)

    def give_back(self, lease: Lease) -> None:
        """Hold a lease whose claim has committed, and return all its items unstarted."""
        self._return(self.leases.add(lease), lease.items)

    def apply(self, lane: Lane) -> None:
        """Go on with the current policy; a pause returns the items that have not started."""
        self.lane = lane
        if not lane.enabled:
            self._is_withheld.set()
            self._give_back_waiting()
        elif not self.is_stopping:
            self._is_withheld.clear()

    def stop(self, *, grace: timedelta) -> None:
        """Return the items that have not started; the others may run for `grace`."""
        self.is_stopping = True
        self._is_withheld.set()
        self._give_back_waiting()
        self._loop.call_later(grace.total_seconds(), self._cancel_tasks)

    def in_starting_order(self, lease: Lease) -> list[Claimed]:
        """Spread the starts over the lane's jitter window; return the earliest first.

        What is overdue is spread from now on; from its due instant, all would start at once.
        Not in a lane with a rate: its starts are spaced already, and jitter could exceed the rate.
        """
        window = self.lane.jitter_window.total_seconds()
        takes_early = self.kind.takes_early
        if self.lane.rate is not None or (window == 0 and takes_early is None):
            return lease.items
        spread = (
            replace(
                claimed,
                start_in=0.0
                if _is_taken_early(claimed, takes_early)
                else max(0.0, claimed.start_in) + random.uniform(0, window),  # noqa: S311
            )
            for claimed in lease.items
        )
        return sorted(spread, key=lambda claimed: claimed.start_in)

    def _give_back_waiting(self) -> None:
        while self._waiting:
            held, claimed = self._waiting.popleft()
            self._end(held, claimed, RETURNED, began_at=monotonic())

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start_another(self, group: asyncio.TaskGroup) -> None:
        """Start one more task if an item waits and no other task is about to take it."""
        if self._waiting and not self._is_starting and self._running < self.lane.concurrency:
            self._is_starting = True
            self._running += 1
            task = spawn(group, self._run_waiting(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_waiting(self, group: asyncio.TaskGroup) -> None:
        """Run waiting items one after another until there are none.

        A task starts the next one before it runs its item. So handlers that never await share one
        task per batch, and the others get one task each, up to the lane's concurrency.
        """
        self._is_starting = False
        ran = 0
        guard = self._watchdog.guard()
        try:
            while self._waiting and self._running <= self.lane.concurrency:
                if len(self._waiting) > 1:
                    # Before the item is taken: a group that is being cancelled starts no task.
                    self._start_another(group)
                held, claimed = self._waiting.popleft()
                if self.kind.handle_many is not None:
                    await self._run_many(held, claimed, guard)
                elif self._is_limited(claimed):
                    await self._run_limited(held, claimed, guard)
                else:
                    await self._run_one(held, claimed, guard)
                ran += 1
                if ran % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            self._running -= 1
            self.on_free()

    async def _run_one(self, held: HeldLease, claimed: Claimed, guard: Guard) -> None:
        if claimed.start_in > 0 and not await self._reach_start(held, [claimed]):
            return
        began_at = monotonic()
        refusal = self._refusal(held, claimed, began_at)
        if refusal is not None:
            self._end(held, claimed, refusal, began_at=began_at)
            return
        if held.lease.marks_starts and not await self._mark_started(held, [claimed]):
            return
        began_at = monotonic()
        try:
            ending = await execute(
                claimed,
                self.kind,
                held.lease.token,
                guard=guard,
                fence=self.fence,
                failures=self._failures,
            )
        except StillRunning as cancelled:
            self._leave_thread(held, [claimed], cancelled.thread, began_at=began_at)
            raise
        except BaseException:
            self._end(held, claimed, self._unknown, began_at=began_at)
            raise
        self._end(held, claimed, ending, began_at=began_at)

    async def _run_many(self, held: HeldLease, first: Claimed, guard: Guard) -> None:
        """Run a batch handler on all items of the lease that may start together with the first."""
        start_in = max(first.start_in, monotonic() - held.lease.began_at)
        batch = [first]
        while self._waiting and self._waiting[0][0] is held:
            if self._waiting[0][1].start_in > start_in:
                break
            batch.append(self._waiting.popleft()[1])
        if first.start_in > 0 and not await self._reach_start(held, batch):
            return
        limited = [claimed for claimed in batch if self._is_limited(claimed)]
        if limited:
            batch = [claimed for claimed in batch if not self._is_limited(claimed)]
        if batch:
            try:
                await self._run_batch(held, batch, guard)
            except BaseException:
                self._return(held, limited)
                raise
        if limited:
            await self._run_parts(held, limited, guard)

    async def _run_batch(self, held: HeldLease, batch: list[Claimed], guard: Guard) -> None:
        if held.lease.marks_starts and not await self._mark_started(held, batch):
            return
        began_at = monotonic()
        refusals = {claimed.id: self._refusal(held, claimed, began_at) for claimed in batch}
        wanted = [claimed for claimed in batch if refusals[claimed.id] is None]
        endings = {claimed.id: self._unknown for claimed in wanted}
        try:
            outcomes = await execute_many(
                wanted,
                self.kind,
                held.lease.token,
                guard=guard,
                fence=self.fence,
                failures=self._failures,
            )
            endings |= {item.id: outcome for item, outcome in zip(wanted, outcomes, strict=True)}
        except StillRunning as cancelled:
            self._leave_thread(held, wanted, cancelled.thread, began_at=began_at)
            batch = [claimed for claimed in batch if refusals[claimed.id] is not None]
            raise
        finally:
            for claimed in batch:
                ending = refusals[claimed.id] or endings[claimed.id]
                self._end(held, claimed, ending, began_at=began_at)

    # ---------------------------------------------------------------------------- limit keys

    def _is_limited(self, claimed: Claimed) -> bool:
        """Return whether the lane limits a key of the item."""
        if claimed.limit_keys is None or self.lane.key_limits is None:
            return False
        return not self.lane.key_limits.keys().isdisjoint(claimed.limit_keys)

    async def _run_limited(self, held: HeldLease, claimed: Claimed, guard: Guard) -> None:
        """Run an item once its limit keys admit it."""
        if claimed.start_in > 0 and not await self._reach_start(held, [claimed]):
            return
        began_at = monotonic()
        refusal = self._refusal(held, claimed, began_at)
        if refusal is not None:
            self._end(held, claimed, refusal, began_at=began_at)
            return
        admitted = await self._admit(held, claimed)
        if admitted is None:
            return
        try:
            await self._run_one(held, self._admitted_now(held, claimed), guard)
        finally:
            await finish(self.gate.leave([admitted]), within=LEAVE_GRACE)

    async def _run_parts(self, held: HeldLease, batch: Sequence[Claimed], guard: Guard) -> None:
        """Run a batch handler on the items as their limit keys admit them.

        Those that are admitted together run together. An item that was admitted while an earlier
        part ran, and is late, is admitted again.
        """
        arrivals: asyncio.Queue[_Arrival] = asyncio.Queue(len(batch))

        async def arrive(claimed: Claimed) -> None:
            admitted = await self._admit(held, claimed)
            arrivals.put_nowait(_Arrival(claimed, admitted, monotonic()))

        missing = len(batch)
        try:
            async with asyncio.TaskGroup() as group:
                for claimed in batch:
                    spawn(group, arrive(claimed))
                while missing:
                    part = [await arrivals.get()]
                    while not arrivals.empty():
                        part.append(arrivals.get_nowait())
                    missing -= len(part)
                    for late in await self._run_part(held, part, guard):
                        missing += 1
                        spawn(group, arrive(late))
        finally:
            left = [arrivals.get_nowait() for _ in range(arrivals.qsize())]
            admitted = [each for each in left if each.admitted is not None]
            self._return(held, [each.claimed for each in admitted])
            await self._leave_gate(admitted)

    async def _run_part(
        self, held: HeldLease, part: Sequence["_Arrival"], guard: Guard
    ) -> list[Claimed]:
        """Run the items that were admitted, except for those that are late; return these."""
        at = monotonic() - LATE_MAX.total_seconds()
        late = [each for each in part if each.admitted is not None and each.at < at]
        started = [each for each in part if each.admitted is not None and each.at >= at]
        try:
            await self._leave_gate(late)
        except BaseException:
            self._return(held, [each.claimed for each in part if each.admitted is not None])
            await self._leave_gate(started)
            raise
        if started:
            batch = [self._admitted_now(held, each.claimed) for each in started]
            try:
                await self._run_batch(held, batch, guard)
            except BaseException:
                self._return(held, [each.claimed for each in late])
                raise
            finally:
                await self._leave_gate(started)
        return [each.claimed for each in late]

    async def _leave_gate(self, arrivals: Sequence["_Arrival"]) -> None:
        if arrivals:
            admitted = [each.admitted for each in arrivals]
            await finish(self.gate.leave(admitted), within=LEAVE_GRACE)

    async def _admit(self, held: HeldLease, claimed: Claimed) -> object | None:
        """Wait until the item may start; None: a key is at its limit, and the item is snoozed."""
        began_at = monotonic()
        keys = limits_of(claimed.limit_keys or {}, self.lane.key_limits)
        try:
            answer = await self.gate.admit(self.lane.name, keys, timeout=self.kind.timeout)
        except BaseException:
            self._end(held, claimed, RETURNED, began_at=began_at)
            raise
        if not isinstance(answer, StartRefused):
            return answer
        reason = refusal_reason(answer.key.name, answer.key.value, answer.limit)
        self._end(held, claimed, Snooze(answer.after, reason), began_at=began_at)
        return None

    def _admitted_now(self, held: HeldLease, claimed: Claimed) -> Claimed:
        """Return an item that starts now: in a lane with a rate, its limit keys came after it."""
        is_slotted = self.lane.rate is not None
        start_in = monotonic() - held.lease.began_at if is_slotted else 0.0
        return replace(claimed, start_in=start_in)

    # -------------------------------------------------------------------------------- endings

    def _leave_thread(
        self,
        held: HeldLease,
        batch: Sequence[Claimed],
        thread: asyncio.Future[object],
        *,
        began_at: float,
    ) -> None:
        """Decide about items whose task is cancelled while the thread of their handler runs."""
        if not self.is_stopping:
            # The lane is restarted after a failure and still renews the lease.
            def end(_: object) -> None:
                for claimed in batch:
                    self._end(held, claimed, self._unknown, began_at=began_at)

            thread.add_done_callback(end)
            return
        # Settled now, the items could run elsewhere beside this thread. The lease expires by itself
        # after the process, and the thread with it, has ended.
        self.leases.abandon(held, len(batch))
        self.log.warning(
            "handler.abandoned",
            lane=self.lane.name,
            handler=self.kind.handler_name,
            item_count=len(batch),
        )
        self.on_ended()

    async def _mark_started(self, held: HeldLease, batch: Sequence[Claimed]) -> bool:
        """Commit that items are about to start; return them, and false, if they may not.

        If the mark cannot be written, no other item of the lease starts either. An item that was
        marked and is then returned has not started, whatever its mark says.
        """
        is_marked = False
        try:
            with suppress(DatabaseAway):
                item_ids = [each.id for each in batch]
                is_marked = await self.fence.mark_started(held.lease.token, item_ids)
        finally:
            if not is_marked:
                held.lose()
            may_start = is_marked and not self._is_withdrawn(held)
            if not may_start:
                self._return(held, batch)
        return may_start

    def _return(self, held: HeldLease, batch: Sequence[Claimed]) -> None:
        for claimed in batch:
            self._end(held, claimed, RETURNED, began_at=monotonic())

    async def _reach_start(self, held: HeldLease, batch: Sequence[Claimed]) -> bool:
        """Wait for the start of the first item; return them all, and false, if they may not start.

        They are taken from those that wait: nobody else would end them.
        """
        is_reached = False
        try:
            is_reached = await self._until_start(held, batch[0])
        finally:
            if not is_reached:
                self._return(held, batch)
        return is_reached

    async def _until_start(self, held: HeldLease, claimed: Claimed) -> bool:
        """Wait for the item's start; return false if a stop or a pause ended the wait before it."""
        # Not before its due instant, however wrong the estimate of the claim's instant is. Slots
        # have a tolerance for that.
        error = held.lease.error if self.lane.rate is None else 0.0
        starts_at = held.lease.began_at + error + claimed.start_in
        while monotonic() < starts_at and not self._is_withheld.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(starts_at + TIMER_ROUNDING):
                    await self._is_withheld.wait()
        return monotonic() >= starts_at

    def _refusal(self, held: HeldLease, claimed: Claimed, now: float) -> Ending | None:
        """Return the ending of an item that must not start: paused, lease lost, or too late."""
        if self._is_withdrawn(held):
            return RETURNED
        if self._has_missed_slot(held, claimed, now):
            return RETURNED
        if claimed.not_after is None:
            return None
        elapsed = now - held.lease.began_at
        is_late = held.lease.claimed_at + timedelta(seconds=elapsed) > claimed.not_after
        return EXPIRED if is_late else None

    def _is_withdrawn(self, held: HeldLease) -> bool:
        """Return whether no item of the lease may start: paused, stopping, or lease lost.

        A worker that was suspended must not start items that another worker may hold by now.
        """
        is_lost = held.may_be_lost(self.lane.lease, boot_seconds())
        return not self.lane.enabled or self.is_stopping or is_lost

    def _has_missed_slot(self, held: HeldLease, claimed: Claimed, now: float) -> bool:
        """Return whether an item is too late for its slot.

        It would start together with those of later slots, which another process may hold.
        """
        if self.lane.rate is None:
            return False
        late_max = tolerance(self.lane.rate, self.lane.burst, error=held.lease.error)
        slot_at = held.lease.began_at + claimed.start_in
        return self.pace.has_missed(slot_at, now, late_max=late_max)

    def _end(self, held: HeldLease, claimed: Claimed, ending: Ending, *, began_at: float) -> None:
        now = monotonic()
        ended = Ended(claimed, ending, int((now - began_at) * 1000))
        if held.end(ended, now):
            self.on_ended()
        self._measured += 1
        if now - self._measured_at > MEASURE_SECONDS:
            self.ended_per_second = self._measured / (now - self._measured_at)
            self._measured_at, self._measured = now, 0


def _is_taken_early(claimed: Claimed, takes_early: Callable[[Any], bool] | None) -> bool:
    if takes_early is None or claimed.preloaded is None:
        return False
    return takes_early(claimed.preloaded.payload)
