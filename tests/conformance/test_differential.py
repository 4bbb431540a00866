"""The Redis gate and the local gate give the same answers to the same history."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.base.clock import FakeClock
from penstock.integrations.redis.client import Client, connect
from penstock.integrations.redis.gate import RedisGate
from penstock.limits.gate import Gate, Permit, Refusal, Rules, Verdict
from penstock.limits.local import LocalGate
from tests.conformance.scene import PATIENT
from tests.redis_server import RedisServer

# The same examples each time, so that a build does not fail by chance. With the variable set, this
# many new examples each time; a failure prints how to repeat it.
EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")
STEPS_MIN, STEPS_MAX = 20, 60
SECOND = timedelta(seconds=1)
START = datetime(2030, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Enter:
    """This many callers enter at once."""

    callers: int
    key: int


@dataclass(frozen=True, slots=True)
class Leave:
    """One caller with a permit leaves; a caller that is never picked has died."""

    which: int
    verdict: Verdict
    cooldown: timedelta | None


@dataclass(frozen=True, slots=True)
class Advance:
    """Time passes."""

    by: timedelta


Step = Enter | Leave | Advance

lengths = st.sampled_from([timedelta(seconds=s) for s in (0.001, 0.05, 0.26, 1, 7, 31, 90, 1900)])
some_rules = st.builds(
    Rules,
    rate=st.sampled_from([None, 0.05, 1, 3, 10, 100]),
    concurrency=st.integers(1, 6),
    permit_ttl=st.sampled_from([SECOND, 30 * SECOND]),
    failures_max=st.integers(1, 5),
    open_for=st.sampled_from([SECOND, 30 * SECOND, 3000 * SECOND]),
    probes_max=st.integers(1, 3),
)
verdicts = st.sampled_from(["failing", "failing", "alive", "unknown"])
steps = st.one_of(
    st.builds(Enter, callers=st.sampled_from([1, 1, 2, 5, 40]), key=st.integers(0, 1)),
    st.builds(
        Leave,
        which=st.integers(0, 20),
        verdict=verdicts,
        cooldown=st.none() | st.none() | st.none() | lengths,
    ),
    st.builds(Advance, by=lengths),
)
histories = st.lists(steps, min_size=STEPS_MIN, max_size=STEPS_MAX)


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
def test_both_gates_give_the_same_answers(redis_server: RedisServer) -> None:
    """Calls, deaths, failures, cooldowns: in any order, at any time, with any rules."""
    numbers = count()
    with asyncio.Runner() as runner:
        client = connect(redis_server.url)

        @settings(
            max_examples=int(EXAMPLES or 200),
            derandomize=EXAMPLES is None,
            database=None,
            deadline=None,
            print_blob=True,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(
            rules=st.tuples(some_rules, some_rules),
            history=histories,
            chance=st.sampled_from([0.0, 0.3, 0.999_999_9]),
        )
        def compare(rules: tuple[Rules, Rules], history: Sequence[Step], chance: float) -> None:
            # A prefix for each history, so that histories do not share keys.
            prefix = f"{next(numbers)}:"
            runner.run(_run_history(client, rules, history, chance=chance, prefix=prefix))

        compare()

        runner.run(client.aclose())


async def _run_history(
    client: Client,
    rules: tuple[Rules, Rules],
    history: Sequence[Step],
    *,
    chance: float,
    prefix: str,
) -> None:
    clock = FakeClock(START)
    local = LocalGate(clock, chance=lambda: chance)
    redis = RedisGate(client, clock=clock, chance=lambda: chance, prefix=prefix, timeout=PATIENT)
    held: list[tuple[Permit, Permit]] = []
    for step in history:
        match step:
            case Enter(callers, key):
                from_local = await _enter(local, [str(key)] * callers, rules[key])
                from_redis = await _enter(redis, [str(key)] * callers, rules[key])
                assert [_comparable(each) for each in from_local] == [
                    _comparable(each) for each in from_redis
                ]
                held += zip(_permits_of(from_local), _permits_of(from_redis), strict=True)
            case Leave(which, verdict, cooldown) if held:
                permits = held.pop(which % len(held))
                for gate, permit in zip((local, redis), permits, strict=True):
                    await gate.leave(
                        permit, rules[int(permit.key)], verdict=verdict, cooldown=cooldown
                    )
            case Leave():
                pass
            case Advance(by):
                clock.advance(by)
        for key in ("0", "1"):
            assert await local.inspect(key) == await redis.inspect(key)


async def _enter(gate: Gate, keys: Sequence[str], rules: Rules) -> list[Permit | Refusal]:
    """Enter with all callers at once, in this order."""
    return await asyncio.gather(*(gate.enter(key, rules) for key in keys))


def _permits_of(answers: Sequence[Permit | Refusal]) -> list[Permit]:
    return [answer for answer in answers if isinstance(answer, Permit)]


def _comparable(answer: Permit | Refusal) -> tuple[object, ...]:
    """Return what must be equal; permit ids differ."""
    if isinstance(answer, Refusal):
        return answer.reason, answer.after
    return answer.wait, answer.entered_at, answer.is_probe
