"""Permits, and deadlines of waits."""

import asyncio

import pytest

from penstock.base.aio import spawn
from penstock.base.permits import Permits, deadline

LONG_SECONDS = 60.0
PAST = 0.0


def soon() -> float:
    return asyncio.get_running_loop().time() + LONG_SECONDS


async def test_permits_are_given_in_the_order_of_the_waits() -> None:
    permits = Permits(1)
    order: list[str] = []

    async def wait(name: str) -> None:
        await permits.wait(soon())
        order.append(name)

    assert permits.try_take()
    assert not permits.try_take()
    async with asyncio.TaskGroup() as group:
        for name in ("first", "second"):
            spawn(group, wait(name))
        await turn_of_the_loop()
        permits.release()
        await turn_of_the_loop()
        assert order == ["first"]
        permits.release()

    assert order == ["first", "second"]


@pytest.mark.parametrize("is_given", [False, True], ids=["before its permit", "with its permit"])
async def test_a_wait_that_is_cancelled_loses_no_permit(*, is_given: bool) -> None:
    """A lost permit would be a connection less until the process ends."""
    permits = Permits(1)
    assert permits.try_take()
    async with asyncio.TaskGroup() as group:
        waiting = spawn(group, permits.wait(soon()))
        await turn_of_the_loop()
        if is_given:
            permits.release()
        waiting.cancel()
        await asyncio.wait({waiting})
        if not is_given:
            permits.release()

    assert permits.try_take()
    assert not permits.try_take()


async def test_fewer_permits_hold_once_the_others_are_released() -> None:
    """A limit that is lowered must hold for the calls after it, also for those that wait."""
    permits = Permits(2)
    assert permits.try_take()
    assert permits.try_take()
    permits.resize(1)
    async with asyncio.TaskGroup() as group:
        waiting = spawn(group, permits.wait(soon()))
        await turn_of_the_loop()
        permits.release()
        await turn_of_the_loop()
        assert not waiting.done()
        permits.release()

    assert waiting.result()
    assert not permits.try_take()


async def test_more_permits_are_given_to_those_that_wait() -> None:
    permits = Permits(1)
    assert permits.try_take()
    async with asyncio.TaskGroup() as group:
        waiting = spawn(group, permits.wait(soon()))
        await turn_of_the_loop()
        permits.resize(3)

    assert waiting.result()
    assert permits.try_take()
    assert not permits.try_take()


async def test_a_wait_ends_without_a_permit_at_its_time() -> None:
    permits = Permits(1)
    assert permits.try_take()

    assert not await permits.wait(PAST)
    permits.release()
    assert permits.try_take()


async def test_all_waits_end_when_there_is_nothing_to_limit() -> None:
    permits = Permits(0)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            spawn(group, permits.wait(soon()))
        await turn_of_the_loop()
        permits.wake_all()


async def test_a_deadline_raises_the_error_of_its_caller() -> None:
    with pytest.raises(LookupError):
        async with deadline(PAST, LookupError):
            await asyncio.Event().wait()


async def test_a_deadline_passes_on_a_timeout_of_its_block() -> None:
    """The operating system raises TimeoutError for a connect that it gives up."""
    with pytest.raises(TimeoutError):
        async with deadline(soon(), LookupError):
            raise TimeoutError


async def turn_of_the_loop() -> None:
    """Let every task that is ready run once."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()
