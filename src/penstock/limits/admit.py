"""Pass a gate: enter, wait for the reserved instant, wait a moment at a full semaphore."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

from penstock.base.aio import finish
from penstock.limits.gate import Admission, Permit, Refusal

P = TypeVar("P", Permit, Admission)

# How late a call may be for its instant. At 50 a second calls are 20 ms apart; a quarter of that
# changes no second's count by more than one, and neither does less than one distance at any rate.
LATE_MIN = timedelta(milliseconds=5)
LATE_MAX = timedelta(milliseconds=50)  # A busy machine is seldom later. More would show as a burst.
LATE_TRIES = 3
# The longest wait at a full semaphore before a snooze, which costs as much as a delivery. A waiting
# call occupies a place in the lane, so the wait must be short.
PERMIT_WAIT_MAX = timedelta(milliseconds=50)
EARLY_MAX = 0.0005  # Seconds that the loop's timers do not distinguish from none.
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
    asked_at = monotonic()
    answer = await enter()
    if not isinstance(answer, Refusal) and answer.wait <= EARLY_MAX:
        return answer  # Nearly always; another coroutine would cost it 1 % of a delivery.
    answer = await _keep_instant(answer, asked_at, enter=enter, leave=leave, rate=rate)
    wait_until = monotonic() + PERMIT_WAIT_MAX.total_seconds()
    while isinstance(answer, Refusal) and answer.reason == "concurrency_limited":
        after = answer.after.total_seconds()
        if monotonic() + after > wait_until:
            break
        await asyncio.sleep(after)
        asked_at = monotonic()
        answer = await enter()
        answer = await _keep_instant(answer, asked_at, enter=enter, leave=leave, rate=rate)
    return answer


async def _keep_instant(
    answer: P | Refusal,
    asked_at: float,
    *,
    enter: Callable[[], Awaitable[P | Refusal]],
    leave: Callable[[P], Coroutine[Any, Any, None]],
    rate: float | None,
) -> P | Refusal:
    """Wait for the instant that the gate reserved when it was asked at `asked_at`.

    A call that is delayed and misses its instant enters again: late calls of several workers
    would bunch up and exceed the rate. Only LATE_TRIES times: a process that is always late
    must still make its calls.
    """
    tries = 0
    while not isinstance(answer, Refusal) and answer.wait > EARLY_MAX:
        try:
            await asyncio.sleep(answer.wait)
        except BaseException:
            await finish(leave(answer), within=LEAVE_GRACE)
            raise
        lateness = monotonic() - asked_at - answer.wait
        if tries == LATE_TRIES or lateness <= _late_max(rate):
            return answer
        tries += 1
        await leave(answer)
        asked_at = monotonic()
        answer = await enter()
    return answer


def _late_max(rate: float | None) -> float:
    """Return how many seconds a call may be late for its instant.

    With less than the distance of two calls, a second has one more call than the rate at most.
    """
    late_min, late_max = LATE_MIN.total_seconds(), LATE_MAX.total_seconds()
    return late_max if rate is None else max(late_min, min(late_max, 1 / rate - late_min))
