"""What wakes a lane: timers keep the earliest promise, and no call is lost."""

import asyncio

from penstock.kernel.wake import Wake
from tests.kernel.scene import PATIENCE


async def test_a_later_timer_does_not_replace_an_earlier_one() -> None:
    wake = Wake()
    wake.within(0.01)

    wake.within(3_600)

    async with asyncio.timeout(PATIENCE):
        await wake.wait()
    wake.cancel()


async def test_an_earlier_timer_replaces_a_later_one() -> None:
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
