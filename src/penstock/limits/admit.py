"""Pass a gate: enter, wait for the reserved instant, wait a moment at a full semaphore."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

from penstock.base.aio import finish
from penstock.limits.gate import Entry, Permit, Refusal

P = TypeVar("P", Permit, Entry)

# How late a call may be for its instant. At 50 a second calls are 20 ms apart; a quarter of that
# changes no second's count by more than one, and neither does less than one distance at any rate.
LATE_MIN = timedelta(milliseconds=5)
LATE_MAX = timedelta(milliseconds=50)  # A busy machine is seldom later. More would show as a burst.
LATE_TRIES = 3
# The longest wait at a full semaphore before a snooze, which costs as much as a delivery. A waiting
# call occupies a place in the lane, so the wait must be short.
PERMIT_WAIT_MAX = timedelta(milliseconds=50)
EARLY_MAX = 0.0005  # Seconds that the loop's timers cannot tell from none.
LEAVE_GRACE = timedelta(seconds=2)  # To return a permit although the attempt was cancelled.


async def admit(
    enter: Callable[[], Awaitable[P | Refusal]],
    leave: Callable[[P], Coroutine[Any, Any, None]],
    *,
    rate: float | None,
) -> P | Refusal:
    """Enter and wait for the instant that was reserved; a refusal may take up to PERMIT_WAIT_MAX.

    `rate` is the highest that limits the call. What was entered is left again on a cancellation.
    """
    answer = await _enter(enter, leave, rate=rate)
    if not isinstance(answer, Refusal):
        return answer
    wait_until = monotonic() + PERMIT_WAIT_MAX.total_seconds()
    while isinstance(answer, Refusal) and answer.reason == "concurrency_limited":
        after = answer.after.total_seconds()
        if monotonic() + after > wait_until:
            break
        await asyncio.sleep(after)
        answer = await _enter(enter, leave, rate=rate)
    return answer


async def _enter(
    enter: Callable[[], Awaitable[P | Refusal]],
    leave: Callable[[P], Coroutine[Any, Any, None]],
    *,
    rate: float | None,
) -> P | Refusal:
    """Enter the gate and wait for the instant that it has reserved.

    A call that is delayed and misses its instant enters again: late calls of several workers
    would bunch up and exceed the rate. Only LATE_TRIES times: a process that is always late
    must still make its calls.
    """
    tries = 0
    while True:
        asked_at = monotonic()
        permit = await enter()
        if isinstance(permit, Refusal) or permit.wait <= EARLY_MAX:
            return permit
        try:
            await asyncio.sleep(permit.wait)
        except BaseException:
            await finish(leave(permit), within=LEAVE_GRACE)
            raise
        lateness = monotonic() - asked_at - permit.wait
        if tries == LATE_TRIES or lateness <= _late_max(rate):
            return permit
        tries += 1
        await leave(permit)


def _late_max(rate: float | None) -> float:
    """Return how many seconds a call may be late for its instant.

    With less than the distance of two calls, a second has one more call than the rate at most.
    """
    late_min, late_max = LATE_MIN.total_seconds(), LATE_MAX.total_seconds()
    return late_max if rate is None else max(late_min, min(late_max, 1 / rate - late_min))
