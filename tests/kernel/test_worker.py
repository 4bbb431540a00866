"""A real worker in this process: what wakes it, what it runs, how it stops, what it survives."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from penstock import Dead, Done, Hold, Item, Retry
from penstock.base.log import get_logger
from penstock.base.settings import Settings
from penstock.kernel.claim import REWIND_INTERVAL, REWIND_SHARE, Lease
from penstock.kernel.enqueue import enqueue, enqueue_many
from penstock.kernel.executor import RETURNED, Executor
from penstock.kernel.fence import LeaseFence
from penstock.kernel.inspect import balance, read_attempts
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane, pause_lane, resume_lane, set_lane
from penstock.kernel.lease import HeldLeases
from penstock.kernel.runner import NOTIFY_INTERVAL
from penstock.kernel.sweep import rescue
from penstock.kernel.worker import Worker
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    HOUR,
    NOON,
    PATIENCE,
    SECOND,
    claimed,
    kind_of,
    outcomes_of,
    own_gate,
    reason_of,
    state_of,
    worker_of,
)

NEVER = HOUR  # A poll interval that excludes the poll.
AnyItem = Item[Any]


class Recorder:
    """A handler that records its items and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.items: list[AnyItem] = []
        self._changed = asyncio.Condition()

    async def __call__(self, item: AnyItem) -> None:
        async with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    async def has(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.items) >= count)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncGenerator[asyncio.Event]:
    """Run workers until the block ends, then stop them gracefully and wait for that."""
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run(stop))
        yield stop
        stop.set()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask the database again and again; each time the loop goes round."""
    while not await condition():
        pass


async def until_state(db: Connection, item_id: ItemId, *states: str) -> None:
    async def is_there() -> bool:
        return await state_of(db, item_id) in states

    await until(is_there)


async def until_nothing_is_held(db: Connection) -> None:
    async def is_there() -> bool:
        return not await db.fetchval("SELECT count(*) FROM penstock.lease")

    await until(is_there)


def claims_of(worker: Worker) -> int:
    """Return how many claims a worker has made, those that found nothing included."""
    return sum(
        histogram.count
        for (name, _), histogram in worker.meter.histograms.items()
        if name == "dispatch_cycle_duration_seconds"
    )


async def until_listening(db: Connection) -> None:
    """Return once a worker hears notifications, so that nothing else can have woken it."""
    listening = (
        "SELECT count(*) > 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND query ILIKE 'listen%' AND state = 'idle'"
    )

    async def is_there() -> bool:
        return bool(await db.fetchval(listening))

    await until(is_there)


async def until_waiting_for_lock(db: Connection, *, at_least: timedelta) -> None:
    """Return once another session has waited for a lock for so long."""
    waiting = (
        "SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE datname = current_database() AND NOT granted AND waitstart < now() - $1::interval"
    )

    async def is_there() -> bool:
        return bool(await db.fetchval(waiting, at_least))

    await until(is_there)


async def send(db: Connection, lane: Lane, payload: object = None, **fields: Any) -> ItemId:
    """Enqueue by the real clock, as a worker sees it."""
    return (await enqueue(db, lane.name, NewItem(payload=payload, **fields))).id


# ------------------------------------------------------------------------------- what wakes it


@pytest.mark.covers("E25", "E67")
async def test_notifications_alone_are_enough(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    recorder = Recorder()
    async with running(worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=NEVER)):
        await until_listening(db)
        for count in range(1, 4):
            await send(db, lane, count)
            await recorder.has(count)

    assert [item.payload for item in recorder.items] == [1, 2, 3]
    assert (await balance(db)).done == 3


@pytest.mark.covers("E24", "E25", "E67")
async def test_the_poll_alone_is_enough(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """At the interval that a worker has by default."""
    recorder = Recorder()
    interval = Settings().poll_interval
    worker = worker_of(
        dsn, pool, kind_of(lane, recorder), poll_interval=interval, hears_notifications=False
    )
    async with running(worker):
        for count in range(1, 4):
            await send(db, lane, count)
            await recorder.has(count)

    assert 0.25 * SECOND <= interval <= SECOND
    assert (await balance(db)).done == 3


async def test_a_timer_wakes_it_when_the_next_item_is_due(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Without notification and poll: the claim returned when the next item is due."""
    due_at = datetime.now(UTC) + SECOND / 2
    await send(db, lane, due_at=due_at)
    recorder = Recorder()
    worker = worker_of(
        dsn, pool, kind_of(lane, recorder), poll_interval=NEVER, hears_notifications=False
    )

    async with running(worker):
        await recorder.has(1)
        assert await db.fetchval("SELECT clock_timestamp()") >= due_at


async def test_a_burst_of_notifications_is_a_few_claims(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """One for the items of the first, and one for all that came meanwhile."""
    recorder = Recorder()
    worker = worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=NEVER)
    async with running(worker):
        await until_listening(db)
        await send(db, lane)
        await recorder.has(1)
        await until_nothing_is_held(db)
        before = claims_of(worker)

        for _ in range(1_000):
            worker._notified(str(lane.lane_id))
        await send(db, lane)
        await recorder.has(2)

    # Besides those two there may be a rewind, and one for a notification that came last.
    assert 1 <= claims_of(worker) - before <= 4


async def test_constant_notifications_cause_a_claim_every_five_milliseconds(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """However slow the machine is: the more time passes, the more claims there may be."""
    worker = worker_of(dsn, pool, kind_of(lane, Recorder()), poll_interval=NEVER)
    loop = asyncio.get_running_loop()
    async with running(worker):
        await until_listening(db)
        before, began_at = claims_of(worker), loop.time()
        for _ in range(400):
            worker._notified(str(lane.lane_id))
            await db.fetchval("SELECT 1")
        claims, seconds = claims_of(worker) - before, loop.time() - began_at

    rewinds = seconds / REWIND_INTERVAL
    assert claims <= seconds / NOTIFY_INTERVAL.total_seconds() + rewinds + 4


async def test_a_notification_is_not_lost_while_a_lane_has_no_room(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """What is announced while every task is taken starts as soon as one is free."""
    await set_lane(db, lane.name, who="ops", concurrency=1)
    is_started, let_go, is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait_first(item: AnyItem) -> None:
        if item.payload == "second":
            is_done.set()
        else:
            is_started.set()
            await let_go.wait()

    worker = worker_of(dsn, pool, kind_of(lane, wait_first), poll_interval=NEVER)

    async def is_second_heard() -> bool:
        await db.fetchval("SELECT 1")
        return worker.meter.counters["notify_wakeups_total", ()] > heard

    async with running(worker):
        await until_listening(db)
        await send(db, lane, "first")
        await is_started.wait()
        heard = worker.meter.counters["notify_wakeups_total", ()]
        await send(db, lane, "second")
        await until(is_second_heard)
        assert not is_done.is_set()
        let_go.set()
        await is_done.wait()


async def test_a_retry_comes_back_without_poll_or_notification(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await send(db, lane)
    tries: list[int] = []
    is_done = asyncio.Event()

    async def fail_twice(item: AnyItem) -> Retry | None:
        tries.append(item.attempt)
        if len(tries) < 3:
            return Retry("503", after=SECOND / 5)  # Later than any rewind that a claim entails.
        is_done.set()
        return None

    worker = worker_of(
        dsn, pool, kind_of(lane, fail_twice), poll_interval=NEVER, hears_notifications=False
    )
    async with running(worker):
        await is_done.wait()

    assert tries == [1, 2, 3]
    assert await outcomes_of(db, item_id) == ["retry", "retry", "done"]


async def test_an_item_behind_the_cursor_does_not_wait_longer_after_a_lock(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """The wait for the lane's lock is no cost of the scan: twenty times as long is a minute."""
    await send(db, lane, "first")
    recorder = Recorder()
    worker = worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=NEVER)
    async with pool.acquire() as other:
        lock = other.transaction()
        await lock.start()
        await other.execute("SELECT FROM penstock.lane WHERE lane_id = $1 FOR UPDATE", lane.lane_id)
        async with running(worker):
            await until_waiting_for_lock(db, at_least=PATIENCE * SECOND * REWIND_SHARE * 1.5)
            await lock.rollback()
            await recorder.has(1)
            await send(db, lane, "behind", due_at=datetime.now(UTC) - HOUR)
            await recorder.has(2)

    assert [item.payload for item in recorder.items] == ["first", "behind"]


async def test_the_poll_finds_an_item_behind_the_cursor(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """However slow rewinds are and however rare therefore: the poll is the bound."""
    recorder = Recorder()
    worker = worker_of(
        dsn, pool, kind_of(lane, recorder), poll_interval=SECOND / 20, hears_notifications=False
    )
    async with running(worker):
        await send(db, lane, "first")
        await recorder.has(1)
        await until_nothing_is_held(db)
        (runner,) = worker._runners.values()
        runner.cursor.rewind_at = float("inf")
        await send(db, lane, "behind", due_at=datetime.now(UTC) - HOUR)
        await recorder.has(2)

    assert [item.payload for item in recorder.items] == ["first", "behind"]


@pytest.mark.covers("A73", "A74", "A18")
async def test_a_pause_and_a_resume_are_seen_at_once(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Within one cycle and without a restart; a notification announces it."""
    recorder = Recorder()
    worker = worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=NEVER)
    await pause_lane(db, lane.name, who="ops")
    item_id = await send(db, lane)

    async with running(worker):
        await until_listening(db)
        assert await state_of(db, item_id) == "ready"
        await resume_lane(db, lane.name, who="ops")
        await recorder.has(1)

    assert await state_of(db, item_id) == "done"


@pytest.mark.covers("A73", "A75", "A17")
async def test_a_changed_policy_is_seen_without_a_restart(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    worker = worker_of(dsn, pool, kind_of(lane, Recorder()), poll_interval=SECOND / 20)
    async with running(worker):
        changed = await set_lane(
            db, lane.name, who="ops", batch_size=1_000, jitter_window=8 * SECOND
        )

        async def is_seen() -> bool:
            await db.fetchval("SELECT 1")
            return worker.lanes == [changed]

        await until(is_seen)


# --------------------------------------------------------------------------------- what it runs


@pytest.mark.covers("C2", "C6")
async def test_a_claim_is_committed_before_its_handler_starts(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """No transaction is open during a call; and a crash in the middle of it leaves a trace."""
    item_id = await send(db, lane)
    seen: list[tuple[str, int]] = []
    is_seen = asyncio.Event()
    open_transactions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in transaction%'"
    )

    async def look(_: AnyItem) -> None:
        seen.append((await state_of(db, item_id), await db.fetchval(open_transactions)))
        is_seen.set()

    async with running(worker_of(dsn, pool, kind_of(lane, look))):
        await is_seen.wait()

    assert seen == [("leased", 0)]


@pytest.mark.covers("A34", "A37", "E27")
async def test_two_workers_run_every_item_once(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(600)])
    recorder = Recorder()
    workers = [worker_of(dsn, pool, kind_of(lane, recorder)) for _ in range(2)]

    async with running(*workers):
        await recorder.has(600)

    assert sorted(item.payload for item in recorder.items) == list(range(600))
    assert (await balance(db)).done == 600


@pytest.mark.covers("E70")
async def test_order_is_kept_per_key(dsn: str, *, pool: Pool, db: Connection, lane: Lane) -> None:
    lane = await set_lane(db, lane.name, who="test", ordering="per_key", concurrency=50)
    items = [NewItem(payload=n, order_key=str(n % 7)) for n in range(140)]
    await enqueue_many(db, lane.name, items)
    recorder = Recorder()

    async with running(worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=SECOND / 10)):
        await recorder.has(140)

    by_key: dict[str | None, list[int]] = {}
    for item in recorder.items:
        by_key.setdefault(item.order_key, []).append(item.payload)
    assert all(payloads == sorted(payloads) for payloads in by_key.values())
    assert (await balance(db)).done == 140


@pytest.mark.covers("E30", "A91")
async def test_no_more_run_at_once_than_the_lane_allows(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    lane = await set_lane(db, lane.name, who="test", concurrency=3)
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(12)])
    running_now, most, ended = 0, 0, 0
    is_full, is_done, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_: AnyItem) -> None:
        nonlocal running_now, most, ended
        running_now += 1
        most = max(most, running_now)
        if running_now == 3:
            is_full.set()
        await may_end.wait()
        running_now -= 1
        ended += 1
        if ended == 12:
            is_done.set()

    async with running(worker_of(dsn, pool, kind_of(lane, slow), poll_interval=SECOND / 20)):
        await is_full.wait()
        may_end.set()
        await is_done.wait()

    assert most == 3
    assert (await balance(db)).done == 12


@pytest.mark.covers("E31")
async def test_each_lane_has_a_cap_of_its_own(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """A lane whose calls all hang must not take the places of another."""
    slow = await set_lane(db, lane.name, who="test", concurrency=2)
    quick = await create_lane(db, "quick", who="test", concurrency=1)
    await enqueue_many(db, slow.name, [NewItem(payload=n) for n in range(6)])
    started, may_end, recorder = Recorder(), asyncio.Event(), Recorder()

    async def hang(item: AnyItem) -> None:
        await started(item)
        await may_end.wait()

    async with running(worker_of(dsn, pool, kind_of(slow, hang), kind_of(quick, recorder))):
        await started.has(2)
        await enqueue_many(db, quick.name, [NewItem(payload=n) for n in range(6)])
        await recorder.has(6)

        assert len(started.items) == 2
        may_end.set()
        await started.has(6)

    assert (await balance(db)).done == 12


@pytest.mark.covers("A28")
async def test_a_batch_handler_gets_batches_and_answers_for_each(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    items = [(await send(db, lane, n)) for n in range(4)]
    sizes: list[int] = []

    async def handle(batch: list[AnyItem]) -> list[Done | Dead | Hold | None]:
        sizes.append(len(batch))
        answers = {0: None, 1: Done("yes"), 2: Dead("no"), 3: Hold("?")}
        return [answers[item.payload] for item in batch]

    async with running(worker_of(dsn, pool, kind_of(lane, handle, takes_batch=True))):
        await until_state(db, items[3], "held")

    assert sizes == [4]
    assert [await state_of(db, each) for each in items] == ["done", "done", "dead", "held"]
    outcomes = [await outcomes_of(db, each) for each in items]
    assert outcomes == [["done"], ["done"], ["dead"], ["hold"]]


@pytest.mark.covers("A90")
async def test_a_batch_handler_gets_nothing_before_it_is_due(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """A buffer moves the claim forward and never the start, whatever the handler takes."""
    await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR)
    early = await send(db, lane, "early", due_at=datetime.now(UTC) + HOUR / 2)
    await send(db, lane, "now")
    seen: list[str] = []
    is_called = asyncio.Event()

    async def handle(batch: list[AnyItem]) -> list[None]:
        seen.extend(item.payload for item in batch)
        is_called.set()
        return [None] * len(batch)

    worker = worker_of(dsn, pool, kind_of(lane, handle, takes_batch=True), grace=SECOND)
    async with running(worker):
        await is_called.wait()

    assert seen == ["now"]
    assert await outcomes_of(db, early) == []


async def test_a_slot_holds_for_a_batch_handler_too(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Slots are handed out a little ahead; a batch handler must not get those items early."""
    await set_lane(db, lane.name, who="test", rate=20)
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(8)])
    starts: list[float] = []
    is_done = asyncio.Event()

    async def handle(batch: list[AnyItem]) -> list[None]:
        starts.extend([asyncio.get_running_loop().time()] * len(batch))
        if len(starts) == 8:
            is_done.set()
        return [None] * len(batch)

    async with running(worker_of(dsn, pool, kind_of(lane, handle, takes_batch=True))):
        await is_done.wait()

    assert starts[-1] - starts[0] >= 7 / 20 - 0.05 - 0.02  # A slot less, and 20 ms of lateness.


async def test_an_item_that_missed_its_slot_gets_another_at_no_cost(
    dsn: str, pool: Pool, *, db: Connection, lane: Lane
) -> None:
    """Else it would start together with those whose slots are next, in whatever process."""
    await set_lane(db, lane.name, who="test", rate=100)
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(40)])
    runs: list[AnyItem] = []
    is_done = asyncio.Event()

    async def handle(item: AnyItem) -> None:
        stalled_until = monotonic() + (0 if runs else 0.15)
        while monotonic() < stalled_until:
            pass  # Nothing else in this process runs meanwhile.
        runs.append(item)
        if len(runs) == 40:
            is_done.set()

    worker = worker_of(dsn, pool, kind_of(lane, handle))
    async with running(worker):
        await is_done.wait()

    assert sorted(item.payload for item in runs) == list(range(40))
    assert {item.attempt for item in runs} == {1}
    counts = worker.meter.counters
    assert counts["attempts_total", (("lane", lane.name), ("state", "returned"))] > 0


@pytest.mark.parametrize(
    ("late", "rate", "burst", "is_returned"),
    [
        (0.31, 10.0, 3, True),
        (0.28, 10.0, 3, False),
        (0.04, 1_000.0, 1, True),
        (0.02, 1_000.0, 1, False),
        (9.0, None, 1, False),
    ],
    ids=["late", "within the burst", "late without a burst", "nearly in time", "without a rate"],
)
async def test_an_item_that_is_late_for_its_slot_is_returned(
    pool: Pool, lane: Lane, *, late: float, rate: float | None, burst: int, is_returned: bool
) -> None:
    """Whether its slot was in the future or, after an idle time, in the past of the claim."""
    executor = executor_of(pool, replace(lane, rate=rate, burst=burst))
    now = monotonic()
    for start_in in (0.5, -0.1):
        item = claimed(1, start_in=start_in)
        began_at = now - late - start_in
        held = executor.leases.add(Lease(token=1, claimed_at=NOON, items=[item], began_at=began_at))

        assert (executor._refusal(held, item, now) is RETURNED) == is_returned


def executor_of(pool: Pool, lane: Lane) -> Executor:
    """Return an executor of a lane, without a worker."""
    return Executor(
        kind=kind_of(lane, Recorder()),
        lane=lane,
        leases=HeldLeases(),
        fence=LeaseFence(pool),
        gate=own_gate(),
        log=get_logger(),
        on_free=lambda: None,
        on_ended=lambda: None,
    )


@pytest.mark.covers("A23", "A75")
async def test_starts_are_spread_over_the_jitter_window(pool: Pool, lane: Lane) -> None:
    """Uniform from nothing to the window, on top of the slot, the earliest first.

    The window is the lane's own, and none unless it is set.
    """
    executor = executor_of(pool, lane)
    lease = Lease(token=1, claimed_at=NOON, items=[claimed(n, start_in=1.0) for n in range(1_000)])

    for window in (4, 8):
        executor.lane = replace(lane, jitter_window=window * SECOND)
        starts = [each.start_in for each in executor.in_starting_order(lease)]

        assert starts == sorted(starts)
        assert 1 <= starts[0] < 1 + window / 20
        assert 1 + window * 19 / 20 < starts[-1] <= 1 + window
        quarters = [starts[at] - 1 for at in (250, 500, 750)]
        assert quarters == pytest.approx([window * n / 4 for n in (1, 2, 3)], abs=0.08 * window)


@pytest.mark.covers("A23")
async def test_starts_of_overdue_items_are_spread_from_the_claim_on(pool: Pool, lane: Lane) -> None:
    """A backlog is dispatched over many cycles: each one must be spread as the first is."""
    executor = executor_of(pool, replace(lane, jitter_window=4 * SECOND))
    items = [claimed(n, start_in=-3600.0) for n in range(1_000)]

    starts = [
        each.start_in
        for each in executor.in_starting_order(Lease(token=1, claimed_at=NOON, items=items))
    ]

    assert 0 <= starts[0] < 0.2
    assert 3.8 < starts[-1] <= 4


@pytest.mark.covers("A17")
async def test_a_cycle_takes_a_whole_batch_whatever_runs_at_once(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """The batch and the interval are the rate of a lane; the concurrency must not lower it."""
    await set_lane(db, lane.name, who="ops", batch_size=200, concurrency=10, dispatch_interval=HOUR)
    for _ in range(300):
        await send(db, lane)
    recorder = Recorder()

    async with running(worker_of(dsn, pool, kind_of(lane, recorder))):
        await recorder.has(200)

    leases = await db.fetch("SELECT count(*) FROM penstock.attempt GROUP BY token")
    assert [row["count"] for row in leases] == [200]


# ----------------------------------------------------------------------------- handlers that fail


@pytest.mark.covers("A27", "A30")
async def test_a_handler_that_raises_costs_an_attempt_and_leaks_no_secret(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """An exception's message may hold a payload or a password; its class and place may not."""
    bad, good = await send(db, lane, "bad"), await send(db, lane, "good")

    async def handle(item: AnyItem) -> None:
        if item.payload == "bad":
            raise ValueError("password=hunter2")

    async with running(worker_of(dsn, pool, kind_of(lane, handle))):
        await until_state(db, good, "done")
        await until_state(db, bad, "scheduled")

    (attempt, *_) = await read_attempts(db, bad)
    assert attempt.outcome == "retry"
    assert (attempt.reason or "").startswith("ValueError in test_worker.py:")
    assert "hunter2" not in (attempt.reason or "")


async def test_a_handler_that_takes_too_long_is_stopped_and_its_outcome_unknown(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await send(db, lane)
    was_stopped = asyncio.Event()

    async def hang(_: AnyItem) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_stopped.set()

    kind = kind_of(lane, hang, timeout=SECOND / 10, when_unknown=Hold)
    async with running(worker_of(dsn, pool, kind)):
        await until_state(db, item_id, "held")

    assert was_stopped.is_set()
    assert await reason_of(db, item_id) == "timed out"


async def test_a_return_value_that_is_not_an_outcome_is_unknown(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """A handler that answers "ok" has said nothing; counting it as done would lose work."""
    item_id = await send(db, lane)

    async def handle(_: AnyItem) -> str:
        return "ok"

    async with running(worker_of(dsn, pool, kind_of(lane, handle, when_unknown=Hold))):
        await until_state(db, item_id, "held")

    assert "returned str" in (await reason_of(db, item_id) or "")


@pytest.mark.covers("A28")
async def test_a_batch_handler_that_miscounts_leaves_all_unknown(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    items = [await send(db, lane, n) for n in range(3)]

    async def handle(_: list[AnyItem]) -> list[Done]:
        return [Done()]

    kind = kind_of(lane, handle, takes_batch=True, when_unknown=Hold)
    async with running(worker_of(dsn, pool, kind)):
        for item_id in items:
            await until_state(db, item_id, "held")

    assert await reason_of(db, items[0]) == "the handler returned 1 outcomes for 3 items"


async def test_an_exception_that_a_batch_handler_returns_fails_its_item_alone(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    fails, succeeds = [await send(db, lane, n) for n in range(2)]

    async def handle(batch: list[AnyItem]) -> list[Exception | None]:
        return [ValueError("secret") if item.id == fails else None for item in batch]

    kind = kind_of(lane, handle, takes_batch=True, when_unknown=Hold)
    with capture_logs() as lines:
        async with running(worker_of(dsn, pool, kind)):
            await until_state(db, fails, "held")
            await until_state(db, succeeds, "done")

    assert (await reason_of(db, fails) or "").startswith("ValueError in ")
    (line,) = [each for each in lines if each["event"] == "handler.failed"]
    assert (line["item_id"], line["log_level"]) == (fails, "warning")
    assert "secret" not in str(line)


class Order(msgspec.Struct):
    number: int


async def test_a_payload_of_another_type_is_dead_and_the_handler_never_sees_it(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    wrong, right = await send(db, lane, {"number": "x"}), await send(db, lane, {"number": 7})
    recorder = Recorder()

    async with running(worker_of(dsn, pool, kind_of(lane, recorder, payload_type=Order))):
        await until_state(db, right, "done")

    assert [item.payload for item in recorder.items] == [Order(7)]
    assert await state_of(db, wrong) == "dead"
    assert (await reason_of(db, wrong) or "").startswith("payload: Expected `int`")


async def spend(duration: timedelta) -> None:
    """Take so long, as a call of another system does."""
    with suppress(TimeoutError):
        async with asyncio.timeout(duration.total_seconds()):
            await asyncio.Event().wait()


class Panic(BaseException):
    """What extensions in other languages raise, which no `except Exception` catches."""


@pytest.mark.parametrize("failure", [asyncio.CancelledError, Panic, SystemExit])
async def test_whatever_a_handler_raises_costs_its_attempt_and_no_more(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane, failure: type[BaseException]
) -> None:
    """Libraries let a CancelledError escape; the items that wait behind must not wait for ever.

    Before it, the items are quick, so that many are held; it is slow, so that none is claimed.
    """
    lane = await set_lane(db, lane.name, who="test", concurrency=1)
    numbers = [NewItem(payload=number) for number in range(300)]
    fails = (await enqueue_many(db, lane.name, numbers))[200].id
    recorder = Recorder()

    async def handle(item: AnyItem) -> None:
        if item.id == fails and item.attempt == 1:
            await spend(SECOND)
            raise failure
        await spend(SECOND / 1_000)
        await recorder(item)

    async with running(worker_of(dsn, pool, kind_of(lane, handle), poll_interval=NEVER)):
        await recorder.has(len(numbers) - 1)

    assert (await outcomes_of(db, fails))[0] == "retry"


async def test_an_item_that_waits_for_its_start_is_not_forgotten_when_its_lane_fails(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    lane = await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR)
    waiting = await send(db, lane, 1, due_at=datetime.now(UTC) + SECOND)
    recorder = Recorder()
    claims = 0

    async def may_claim(_: Connection) -> bool:
        nonlocal claims
        claims += 1
        if claims == 2:
            raise ValueError("a domain's own function")
        return True

    kind = replace(kind_of(lane, recorder), may_claim=may_claim)
    with capture_logs() as lines:
        async with running(worker_of(dsn, pool, kind)):
            await until_state(db, waiting, "leased")
            await send(db, lane, 2)
            await recorder.has(2)

    assert "task.failed" in {line["event"] for line in lines}
    assert await outcomes_of(db, waiting) == ["done"]
    assert (await balance(db)).is_even


async def test_a_statement_that_fails_stops_neither_the_worker_nor_what_runs(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Such as one that an operator has cancelled, or that has waited too long for a lock."""
    first = await send(db, lane, 1)
    is_running, may_end = asyncio.Event(), asyncio.Event()
    recorder = Recorder()

    async def handle(item: AnyItem) -> None:
        is_running.set()
        await may_end.wait()
        await recorder(item)

    async def has_failed() -> bool:
        await db.execute("SELECT")
        return {"cycle.failed", "poll.failed"} <= {line["event"] for line in lines}

    with capture_logs() as lines:
        async with running(worker_of(dsn, pool, kind_of(lane, handle), poll_interval=SECOND / 20)):
            await is_running.wait()
            await db.execute("ALTER TABLE penstock.lane RENAME TO lane_away")
            await db.execute("SELECT pg_notify('penstock', $1)", str(lane.lane_id))
            await until(has_failed)
            await db.execute("ALTER TABLE penstock.lane_away RENAME TO lane")
            may_end.set()
            second = await send(db, lane, 2)
            await recorder.has(2)

    assert [await outcomes_of(db, each) for each in (first, second)] == [["done"], ["done"]]


async def test_a_lease_is_renewed_after_the_clock_was_set_back_by_more_than_its_duration(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """One lease that ended before its claim would be refused, and no lease be renewed with it."""
    await set_lane(db, lane.name, who="test", lease=SECOND)
    await send(db, lane, 1)
    is_running, may_end = asyncio.Event(), asyncio.Event()

    async def handle(_: AnyItem) -> None:
        is_running.set()
        await may_end.wait()

    async with running(worker_of(dsn, pool, kind_of(lane, handle))):
        await is_running.wait()
        # As if the database's clock had been set back by an hour since the claim.
        ahead_until = await db.fetchval(
            "UPDATE penstock.lease SET claimed_at = now() + interval '1 hour',"
            " expires_at = now() + interval '1 hour 1 millisecond' RETURNING expires_at"
        )

        async def is_renewed() -> bool:
            return bool(
                await db.fetchval("SELECT expires_at > $1 FROM penstock.lease", ahead_until)
            )

        await until(is_renewed)
        may_end.set()


class Mute(Exception):
    """An exception that expects an argument, and was raised without one."""

    def __str__(self) -> str:
        return str(self.args[0])


@pytest.mark.parametrize("takes_batch", [False, True])
async def test_an_exception_without_a_text_costs_its_attempt_and_no_more(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane, takes_batch: bool
) -> None:
    lane = await set_lane(db, lane.name, who="test", error_detail="message")
    fails, succeeds = await send(db, lane, 1), await send(db, lane, 2)

    async def handle(item: AnyItem) -> None:
        if item.id == fails:
            raise Mute

    async def handle_many(batch: list[AnyItem]) -> list[Exception | None]:
        return [Mute() if item.id == fails else None for item in batch]

    chosen = handle_many if takes_batch else handle
    kind = kind_of(lane, chosen, takes_batch=takes_batch, when_unknown=Hold)
    async with running(worker_of(dsn, pool, kind)):
        await until_state(db, fails, "held")
        await until_state(db, succeeds, "done")

    assert (await reason_of(db, fails) or "").endswith(": <Mute>")


async def test_an_invalid_return_value_does_not_stop_the_lane(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Retry(error) instead of Retry(str(error)) is a slip that anybody makes once."""
    odd, fine = await send(db, lane, "odd"), await send(db, lane, "fine")

    async def handle(item: AnyItem) -> Retry | None:
        return Retry(ValueError("boom")) if item.payload == "odd" else None  # pyright: ignore[reportArgumentType]

    async with running(worker_of(dsn, pool, kind_of(lane, handle))):
        await until_state(db, fine, "done")
        await until_state(db, odd, "scheduled")

    assert (await outcomes_of(db, odd))[0] == "retry"


# ------------------------------------------------------------------------------------- how it ends


async def test_a_stop_finishes_what_runs(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    lane = await set_lane(db, lane.name, who="test", concurrency=1)
    first, second = await send(db, lane, 1), await send(db, lane, 2)
    is_started, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: AnyItem) -> None:
        is_started.set()
        await may_end.wait()

    async with running(worker_of(dsn, pool, kind_of(lane, slow))) as stop:
        await is_started.wait()
        stop.set()
        may_end.set()

    assert await state_of(db, first) == "done"
    assert await outcomes_of(db, second) == []
    assert await state_of(db, second) == "ready"
    assert (await balance(db)).is_even


async def test_a_stop_returns_unstarted_items_at_once(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """What waits for its instant costs no attempt, and no other worker waits for its lease."""
    await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR)
    waiting = await send(db, lane, "later", due_at=datetime.now(UTC) + HOUR / 2)
    await send(db, lane, "now")
    recorder = Recorder()

    async with running(worker_of(dsn, pool, kind_of(lane, recorder), grace=timedelta(minutes=5))):
        await recorder.has(1)

    assert [item.payload for item in recorder.items] == ["now"]
    assert await state_of(db, waiting) == "scheduled"
    assert await outcomes_of(db, waiting) == []
    assert (await balance(db)).leased == 0


async def test_a_handler_that_exceeds_the_grace_is_cancelled_and_unknown(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await send(db, lane)
    is_started = asyncio.Event()

    async def hang(_: AnyItem) -> None:
        is_started.set()
        await asyncio.Event().wait()

    kind = kind_of(lane, hang, when_unknown=Hold)
    async with running(worker_of(dsn, pool, kind, grace=SECOND / 10)):
        await is_started.wait()

    assert await state_of(db, item_id) == "held"
    assert "worker stopped" in (await reason_of(db, item_id) or "")


async def test_a_pause_returns_claimed_items_that_have_not_started(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """At once, and not when they are due: they can be cancelled while the lane is paused."""
    await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR)
    waiting = await send(db, lane, "later", due_at=datetime.now(UTC) + HOUR / 2)
    await send(db, lane, "now")
    recorder = Recorder()
    worker = worker_of(dsn, pool, kind_of(lane, recorder), poll_interval=SECOND / 20)

    async with running(worker):
        await recorder.has(1)
        assert await state_of(db, waiting) == "leased"
        await pause_lane(db, lane.name, who="ops")
        await until_state(db, waiting, "scheduled")
        await resume_lane(db, lane.name, who="ops")
        await until_state(db, waiting, "leased")

    assert [item.payload for item in recorder.items] == ["now"]
    assert await outcomes_of(db, waiting) == []


async def test_a_worker_without_handlers_waits_to_be_stopped(dsn: str, pool: Pool) -> None:
    """`penstock up` in an empty folder has no handlers, and must not fail for that."""
    async with running(worker_of(dsn, pool, poll_interval=SECOND / 20)):
        await pool.fetchval("SELECT 1")


# ---------------------------------------------------------------------------------------- renewal


async def test_a_renewal_keeps_the_lease_of_a_long_handler(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """A handler may take longer than the lease; no other worker gets its item meanwhile."""
    lane = await set_lane(db, lane.name, who="test", lease=SECOND)
    item_id = await send(db, lane)
    is_started, may_end = asyncio.Event(), asyncio.Event()

    async def long(_: AnyItem) -> None:
        is_started.set()
        await may_end.wait()

    async with running(worker_of(dsn, pool, kind_of(lane, long))):
        await is_started.wait()
        expires_at = await db.fetchval("SELECT expires_at FROM penstock.lease")

        async def is_over() -> bool:
            return await db.fetchval("SELECT clock_timestamp()") > expires_at

        await until(is_over)
        assert await rescue(db) == 0
        may_end.set()

    assert await outcomes_of(db, item_id) == ["done"]


@pytest.mark.covers("A36", "E74")
async def test_a_worker_that_lost_its_lease_records_its_result_as_late(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await send(db, lane)
    is_started, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: AnyItem) -> None:
        is_started.set()
        await may_end.wait()

    with capture_logs() as lines:
        async with running(worker_of(dsn, pool, kind_of(lane, slow))):
            await is_started.wait()
            await pause_lane(db, lane.name, who="ops")
            assert await rescue(db, now=datetime.now(UTC) + HOUR) == 1
            may_end.set()

    (warning,) = [line for line in lines if line["event"] == "lease.lost"]
    assert (warning["log_level"], warning["lane"]) == ("warning", lane.name)
    assert await outcomes_of(db, item_id) in (["lost", "late: done"], ["late: done", "lost"])
    assert (await balance(db)).is_even
