"""What wakes a lane: notifications merge, timers keep the earliest promise."""

import asyncio

import pytest

from penstock.kernel.wake import COALESCE, Wake
from tests.kernel.scene import PATIENCE


@pytest.mark.covers("E23")
async def test_a_burst_of_notifications_is_two_wake_ups() -> None:
    """The first wakes at once, for an idle lane; those of the next 25 to 50 ms become one more."""
    wake = Wake()
    loop = asyncio.get_running_loop()

    async with asyncio.timeout(PATIENCE):
        for _ in range(1_000):
            wake.notified()
        began_at = loop.time()
        await wake.wait()
        at_once = loop.time() - began_at
        await wake.wait()

    assert at_once < COALESCE.total_seconds()
    assert 0.025 <= COALESCE.total_seconds() <= 0.05
    assert loop.time() - began_at >= COALESCE.total_seconds() / 2
    assert not wake._event.is_set()
    assert wake._timer is None


async def test_a_later_promise_does_not_undo_an_earlier_one() -> None:
    wake = Wake()
    wake.within(0.01)

    wake.within(3_600)

    async with asyncio.timeout(PATIENCE):
        await wake.wait()
    wake.cancel()


async def test_an_earlier_promise_replaces_a_later_one() -> None:
    wake = Wake()
    wake.within(3_600)

    wake.within(0.0)

    async with asyncio.timeout(PATIENCE):
        await wake.wait()


async def test_a_wake_up_before_the_wait_is_not_lost() -> None:
    wake = Wake()

    wake.now()

    async with asyncio.timeout(PATIENCE):
        await wake.wait()
    assert not wake._event.is_set()
