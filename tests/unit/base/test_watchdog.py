"""One timer for many timeouts: it ends work that takes too long, and nothing else."""

import asyncio
from datetime import timedelta

import pytest

from penstock.base.watchdog import Guard, Watchdog

SHORT = timedelta(milliseconds=500)  # A busy machine may stop a process for a tenth of it.
LONG = timedelta(seconds=60)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def breathe() -> None:
    """Let all other tasks run once."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


async def test_work_that_takes_too_long_ends_with_a_timeout() -> None:
    """A handler that hangs must not hold its lease for ever."""
    with pytest.raises(TimeoutError), Watchdog(SHORT).guard():
        await for_ever()


async def test_a_guard_can_be_used_again_after_a_timeout() -> None:
    """A handler task runs many items under one guard; a hanging one must not affect the next."""
    guard = Watchdog(SHORT).guard()
    with pytest.raises(TimeoutError), guard:
        await for_ever()

    with guard:
        await breathe()

    with pytest.raises(TimeoutError), guard:
        await for_ever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_is_raised() -> None:
    """The stop of a worker is not a timeout, and must not be swallowed."""
    started = asyncio.Event()

    async def handler_task() -> None:
        with Watchdog(LONG).guard():
            started.set()
            await for_ever()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(handler_task())
        await started.wait()
        task.cancel()

    assert task.cancelled()


async def test_a_timeout_inside_the_work_is_the_works_own() -> None:
    """Handlers use `asyncio.timeout` too; the two must not take each other's cancellations."""
    with Watchdog(LONG).guard(), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await for_ever()


async def test_a_failure_of_the_work_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="mine"), Watchdog(LONG).guard():
        raise ValueError("mine")


async def test_only_the_task_whose_time_is_over_is_ended() -> None:
    """One timer checks all handler tasks of a lane."""
    watchdog = Watchdog(SHORT)
    hung, quick = asyncio.Event(), asyncio.Event()

    async def hang(guard: Guard) -> None:
        with pytest.raises(TimeoutError), guard:
            await for_ever()
        hung.set()

    async def work() -> None:
        guard = watchdog.guard()
        while not hung.is_set():
            with guard:
                await breathe()
        quick.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(work())
        await hang(watchdog.guard())

    assert quick.is_set()
