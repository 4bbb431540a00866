"""The local gate drops idle keys, and only those."""

from datetime import timedelta
from typing import get_args

import pytest

from penstock.base.clock import FakeClock
from penstock.limits.gate import RefusalReason, Rules
from penstock.limits.local import SWEEP_EVERY, LocalGate
from tests.conformance.scene import MILLISECOND, RULES, SECOND, call, enter, refused


async def test_idle_keys_do_not_accumulate(clock: FakeClock) -> None:
    gate = LocalGate(clock)
    rules = Rules(rate=10)

    for n in range(10_000):
        await call(gate, "alive", rules, key=f"key-{n}")
        clock.advance(MILLISECOND)

    assert len(gate._keys) < 300, "a hundred are not idle: their rate is 10 a second"


async def test_the_calls_of_one_key_drop_many_idle_ones(clock: FakeClock) -> None:
    """A burst of keys must not stay until other new keys come."""
    gate = LocalGate(clock)
    for n in range(1000):
        await enter(gate, key=f"key-{n}")
    assert len(gate._keys) == 1000

    clock.advance(RULES.permit_ttl)
    await call(gate, "alive", key="the only one", times=1000)

    assert len(gate._keys) == 1


@pytest.mark.parametrize("reason", get_args(RefusalReason))
async def test_a_key_with_a_limit_in_effect_is_kept(clock: FakeClock, reason: str) -> None:
    """Dropped too early, it would admit all calls."""
    gate = LocalGate(clock)
    rules = Rules(rate=0.1 if reason == "rate_limited" else None, concurrency=1)
    match reason:
        case "circuit_open":
            await call(gate, "failing", rules, times=5)
        case "cooldown":
            permit = await enter(gate, rules)
            await gate.leave(permit, rules, verdict="alive", cooldown=5 * SECOND)
        case "rate_limited":
            await call(gate, "alive", rules)
        case _:
            await enter(gate, rules)

    clock.advance(4 * SECOND)
    await call(gate, "alive", key="another", times=10 * SWEEP_EVERY)

    answer = await gate.enter("sub-123", rules)
    assert getattr(answer, "reason", None) == reason


async def test_a_queue_of_refused_calls_is_kept(clock: FakeClock) -> None:
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
