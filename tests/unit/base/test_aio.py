"""Tasks with an owner."""

import asyncio
from datetime import timedelta
from itertools import islice

import pytest
from structlog.testing import capture_logs

from penstock.base.aio import alongside, finish, retry_delays, spawn, supervise
from penstock.base.log import get_logger

LONG = timedelta(seconds=60)
NONE = timedelta(0)


async def test_finish_returns_the_result_of_its_work() -> None:
    assert await finish(asyncio.to_thread(lambda: 42), within=LONG) == 42


async def test_finish_raises_what_its_work_raises() -> None:
    async def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await finish(fail(), within=LONG)


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_finish_lets_its_work_end_before_the_cancellation_goes_on(cancellations: int) -> None:
    """A settle that is interrupted would make the item run twice; Ctrl-C may come twice."""
    started, may_end, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def settle() -> None:
        started.set()
        await may_end.wait()
        has_ended.set()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, finish(settle(), within=LONG))
        await started.wait()
        for _ in range(cancellations):
            task.cancel()
            await turn_of_the_loop()
        may_end.set()

    assert has_ended.is_set()
    assert task.cancelled()


async def test_finish_cancels_its_work_after_the_grace() -> None:
    """A database that is unavailable must not block the shutdown for ever."""
    started, was_cut = asyncio.Event(), asyncio.Event()

    async def settle() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_cut.set()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, finish(settle(), within=NONE))
        await started.wait()
        task.cancel()

    assert was_cut.is_set()
    assert task.cancelled()


async def test_finish_waits_for_a_future_before_the_cancellation_goes_on() -> None:
    """A call in a batch has no task of its own; it must be answered all the same."""
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, finish(answer, within=LONG))
        await turn_of_the_loop()
        task.cancel()
        await turn_of_the_loop()
        is_waiting = not answer.done() and not task.done()
        answer.set_result(42)

    assert is_waiting
    assert task.cancelled()


async def test_finish_cancels_a_future_after_the_grace() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, finish(answer, within=NONE))
        await turn_of_the_loop()
        task.cancel()

    assert answer.cancelled()
    assert task.cancelled()


async def test_supervise_restarts_what_fails_and_logs_it() -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("secret")

    with capture_logs() as lines:
        await supervise(run, name="sweeper", log=get_logger(), delay_first=NONE)

    assert runs == 3
    assert [line["event"] for line in lines] == ["task.failed", "task.failed"]
    assert lines[0]["task"] == "sweeper"
    assert "secret" not in str(lines)


async def test_supervise_can_be_cancelled() -> None:
    """CancelledError is not a failure to recover from."""
    started = asyncio.Event()

    async def run() -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = spawn(group, supervise(run, name="sweeper", log=get_logger()))
        await started.wait()
        task.cancel()

    assert task.cancelled()


async def test_work_alongside_ends_with_the_body() -> None:
    was_cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    async with alongside(work()):
        await turn_of_the_loop()

    assert was_cancelled.is_set()


async def test_a_single_failure_alongside_is_raised_as_itself() -> None:
    """Callers catch errors by class; a group around one would not be caught."""

    async def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        async with alongside(fail()):
            await asyncio.Event().wait()
    with pytest.raises(KeyError):
        async with alongside():
            raise KeyError


def test_retry_delays_grow_to_the_longest_and_stay_there() -> None:
    growing = retry_delays(first=timedelta(seconds=1), longest=timedelta(seconds=4))
    delays = list(islice(growing, 20))

    assert 0.5 <= delays[0] <= 1
    assert all(2 <= delay <= 4 for delay in delays[2:])


async def turn_of_the_loop() -> None:
    """Let every task that is ready run once."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()
