"""A plain function as a handler runs in a thread, and never beside its own retry."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from penstock import Dead, Done, Item, NewItem, Outcome, Penstock, Retry
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.blocking import THREADS_MAX, in_threads
from penstock.kernel.inspect import read_attempts
from penstock.kernel.item import ItemId
from penstock.kernel.lane import Lane
from penstock.kernel.runner import LaneRunner
from penstock.postgres.clock import DatabaseClock
from penstock.postgres.pool import Pool
from tests.kernel.scene import (
    HOUR,
    PATIENCE,
    kind_of,
    outcomes_of,
    own_gate,
    state_of,
    worker_of,
)

SHORT = timedelta(milliseconds=20)
LEASE = timedelta(seconds=1)
TOKEN = "SELECT token FROM penstock.lease"
EXPIRES_AT = "SELECT expires_at FROM penstock.lease"


@pytest.fixture
def app(dsn: str) -> Penstock:
    return Penstock(dsn, domains=())


class Gate:
    """Lets a test wait for a thread, and a thread for the test."""

    def __init__(self) -> None:
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.open()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self._entered.release()
        assert self._open.wait(PATIENCE)

    async def entered(self) -> None:
        assert await asyncio.to_thread(self._entered.acquire, timeout=PATIENCE)


@asynccontextmanager
async def working(app: Penstock, *, grace: timedelta = HOUR) -> AsyncGenerator[None]:
    """Run a worker until the block ends."""
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        worker = worker_of(app.address, app.pool, *app.kinds.values(), grace=grace)
        group.create_task(worker.run(stop))
        yield
        stop.set()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    while not await condition():
        pass


async def until_attempts(app: Penstock, item_id: ItemId, count: int = 1) -> None:
    async def is_there() -> bool:
        return len(await outcomes_of(app.pool, item_id)) >= count

    await until(is_there)


async def run_one(app: Penstock, lane: str, payload: object = None) -> Any:
    """Run one item to the end of its first attempt, and return that attempt."""
    async with app:
        accepted = await app.enqueue(lane, payload)
        async with working(app):
            await until_attempts(app, accepted.id)
        (attempt,) = await read_attempts(app.pool, accepted.id)
        return attempt


async def test_a_plain_function_runs_in_a_thread_and_its_outcome_counts(app: Penstock) -> None:
    """It did its work, failed with a TypeError, and was repeated."""
    seen: list[tuple[int, bool]] = []

    @app.handler("orders")
    def ship(item: Item[int]) -> Outcome:
        seen.append((item.payload, threading.current_thread() is threading.main_thread()))
        return Done({"parcel": item.payload})

    attempt = await run_one(app, "orders", 7)

    assert (attempt.outcome, attempt.result) == ("done", '{"parcel": 7}')
    assert seen == [(7, False)]


async def test_a_plain_function_that_takes_a_list_gets_batches(app: Penstock) -> None:
    @app.handler("orders")
    def ship(items: list[Item[int]]) -> list[Outcome | None]:
        return [Dead("odd") if item.payload % 2 else None for item in items]

    async with app:
        accepted = await app.enqueue_many("orders", [NewItem(payload=n) for n in range(4)])
        async with working(app):
            for each in accepted:
                await until_attempts(app, each.id)
        outcomes = [await outcomes_of(app.pool, each.id) for each in accepted]

    assert outcomes == [["done"], ["dead"], ["done"], ["dead"]]


@pytest.mark.parametrize(
    ("failure", "named"),
    [
        pytest.param(ValueError("secret"), "ValueError in test_plain_functions.py", id="error"),
        pytest.param(StopIteration(), "RuntimeError", id="StopIteration"),
        pytest.param(SystemExit(1), "RuntimeError", id="SystemExit"),
        pytest.param(asyncio.CancelledError(), "RuntimeError", id="CancelledError"),
    ],
)
async def test_whatever_a_plain_function_raises_costs_an_attempt(
    app: Penstock, failure: BaseException, named: str
) -> None:
    """Never the worker: a future cannot carry StopIteration, and SystemExit ends a loop."""

    @app.handler("orders")
    def ship(item: Item[Any]) -> None:  # noqa: ARG001
        raise failure

    attempt = await run_one(app, "orders")

    assert attempt.outcome == "retry"
    assert attempt.reason.startswith(named)


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(app: Penstock) -> None:
    """A decorator that is no coroutine function often wraps one that is."""

    async def handle(item: Item[Any]) -> Outcome:  # noqa: ARG001
        return Dead("awaited")

    @app.handler("orders")
    @functools.wraps(handle)
    def wrapper(item: Item[Any]) -> Awaitable[Outcome]:
        return handle(item)

    assert (await run_one(app, "orders")).reason == "awaited"


async def test_a_plain_function_keeps_its_lease_after_its_timeout(app: Penstock) -> None:
    """A retry that starts while the thread still runs would do the work twice at once."""
    calls: list[int] = []
    with Gate() as gate, capture_logs() as lines:

        @app.handler("orders", timeout=SHORT, lease=LEASE, backoff_base=SHORT, max_attempts=50)
        def ship(item: Item[Any]) -> Outcome | None:
            calls.append(item.attempt)
            if item.attempt == 1:
                gate.wait()
            return None

        async with app:
            item_id = (await app.enqueue("orders", None)).id
            async with working(app):
                await gate.entered()
                token = await app.pool.fetchval(TOKEN)
                expires_at = await app.pool.fetchval(EXPIRES_AT)

                async def is_renewed() -> bool:
                    return await app.pool.fetchval(EXPIRES_AT) > expires_at

                await until(is_renewed)
                assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
                    "handler.overran"
                ]
                assert (await state_of(app.pool, item_id), calls) == ("leased", [1])
                assert await app.pool.fetchval(TOKEN) == token
                gate.open()

                async def is_done() -> bool:
                    return await state_of(app.pool, item_id) == "done"

                await until(is_done)
            attempts = await read_attempts(app.pool, item_id)

    # On a busy machine a retry may take as long as the time limit, and is retried as well.
    *early, last = [(each.outcome, each.reason) for each in attempts]
    assert early == [("retry", "timed out")] * len(early) != []
    assert last == ("done", None)
    assert calls == [attempt + 1 for attempt in range(len(attempts))]


@pytest.mark.parametrize("takes_batch", [False, True], ids=["one", "batch"])
async def test_a_thread_that_outlasts_the_grace_is_logged_and_its_lease_kept(
    app: Penstock, *, takes_batch: bool
) -> None:
    """Settled at once, another worker could run the item beside the thread."""
    with Gate() as gate, capture_logs() as lines:

        def one(item: Item[Any]) -> None:  # noqa: ARG001
            gate.wait()

        def many(items: list[Item[Any]]) -> list[None]:
            gate.wait()
            return [None for _ in items]

        app.handler("orders", lease=HOUR)(many if takes_batch else one)
        async with app:
            item_id = (await app.enqueue("orders", None)).id
            async with working(app, grace=SHORT):
                await gate.entered()
            state, outcomes = (
                await state_of(app.pool, item_id),
                await outcomes_of(app.pool, item_id),
            )

    assert (state, outcomes) == ("leased", [])
    (line,) = [line for line in lines if line["event"] == "handler.abandoned"]
    assert (line["lane"], line["item_count"]) == ("orders", 1)
    assert not any(line["event"] == "worker.abandoned" for line in lines)


async def test_threads_run_at_once_up_to_the_concurrency(app: Penstock) -> None:
    together = threading.Barrier(3)

    @app.handler("orders", concurrency=3)
    def ship(item: Item[Any]) -> None:  # noqa: ARG001
        together.wait(PATIENCE)

    async with app:
        accepted = await app.enqueue_many("orders", [NewItem(payload=n) for n in range(6)])
        async with working(app):
            for each in accepted:
                await until_attempts(app, each.id)
        outcomes = [await outcomes_of(app.pool, each.id) for each in accepted]

    assert outcomes == [["done"]] * 6


async def test_a_lane_runs_no_more_plain_functions_than_it_has_threads(
    pool: Pool, lane: Lane
) -> None:
    """An item that waits for a thread would use up its timeout before it starts."""
    kind = in_threads(kind_of(lane, lambda item: Retry(str(item))))
    wide = replace(lane, concurrency=THREADS_MAX + 1)

    runner = LaneRunner(
        pool=pool,
        kind=kind,
        lane=wide,
        worker="test",
        gate=own_gate(),
        meter=Meter(),
        log=get_logger(),
        clock=DatabaseClock(),
    )
    at_start = runner.executor.lane.concurrency
    runner.polled(replace(lane, concurrency=1_000), due_in=None, is_behind=False)

    assert (at_start, runner.executor.lane.concurrency) == (THREADS_MAX, THREADS_MAX)
