"""What the gate of one process promises beyond what all gates do: it keeps nothing for ever."""

from datetime import timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.limits.gate import Rules
from penstock.limits.local import SWEEP_EVERY, LocalGate
from tests.conformance.scene import MILLISECOND, RULES, SECOND, call, let_in, refused


async def test_keys_that_came_to_rest_do_not_pile_up(clock: FakeClock) -> None:
    gate = LocalGate(clock)
    rules = Rules(rate=10)

    for n in range(10_000):
        await call(gate, "alive", rules, key=f"key-{n}")
        clock.advance(MILLISECOND)

    assert len(gate._keys) < 300, "a hundred are not at rest: their rate is 10 a second"


async def test_many_keys_at_once_are_dropped_by_the_calls_of_one(clock: FakeClock) -> None:
    """A burst of keys must not stay for as long as no other new ones come."""
    gate = LocalGate(clock)
    for n in range(1000):
        await let_in(gate, key=f"key-{n}")
    assert len(gate._keys) == 1000

    clock.advance(RULES.slot_ttl)
    await call(gate, "alive", key="the only one", times=1000)

    assert len(gate._keys) == 1


@pytest.mark.parametrize("reason", ["circuit_open", "resting", "rate_limited", "crowded"])
async def test_a_key_that_holds_something_is_kept(clock: FakeClock, reason: str) -> None:
    """Dropped too early, it would let everybody in."""
    gate = LocalGate(clock)
    rules = Rules(rate=0.1 if reason == "rate_limited" else None, concurrency=1)
    match reason:
        case "circuit_open":
            await call(gate, "failing", rules, times=5)
        case "resting":
            passed = await let_in(gate, rules)
            await gate.leave(passed, rules, verdict="alive", rest=5 * SECOND)
        case "rate_limited":
            await call(gate, "alive", rules)
        case _:
            await let_in(gate, rules)

    clock.advance(4 * SECOND)
    await call(gate, "alive", key="another", times=10 * SWEEP_EVERY)

    answer = await gate.enter("sub-123", rules)
    assert getattr(answer, "reason", None) == reason


async def test_a_line_of_refused_callers_is_kept(clock: FakeClock) -> None:
    gate = LocalGate(clock)
    rules = Rules(rate=10)
    for _ in range(3):
        await call(gate, "alive", rules)
    for _ in range(100):
        await refused(gate, "rate_limited", rules)

    clock.advance(timedelta(seconds=1))
    await call(gate, "alive", key="another", times=10 * SWEEP_EVERY)
    for _ in range(3):
        await call(gate, "alive", rules)

    assert await refused(gate, "rate_limited", rules) > 8 * SECOND
