"""The behaviour of every gate for calls that several keys limit, local or shared."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.base.clock import FakeClock
from penstock.integrations.redis.client import Client, connect
from penstock.integrations.redis.gate import RedisGate
from penstock.limits.gate import Admission, KeyGate, Limit, ProcessGate, Refusal, RefusalReason
from penstock.limits.local import LocalGate
from tests.conformance.scene import MILLISECOND, PATIENT, SECOND
from tests.redis_server import RedisServer

EXAMPLES = os.environ.get("PENSTOCK_GATE_EXAMPLES")
START = datetime(2030, 1, 1, tzinfo=UTC)


def tenant(rate: float | None = None, concurrency: int | None = None) -> Limit:
    return Limit(key="tenant:42", rate=rate, concurrency=concurrency)


def provider(rate: float | None = None, concurrency: int | None = None) -> Limit:
    return Limit(key="provider:stripe", rate=rate, concurrency=concurrency)


async def enter(gate: KeyGate, *limits: Limit) -> Admission:
    """Return the admission of a call that must be admitted."""
    answer = await gate.enter_all(limits)
    assert isinstance(answer, Admission), answer
    return answer


async def refused(gate: KeyGate, reason: RefusalReason, *limits: Limit) -> Refusal:
    """Return the refusal of a call, which must be for this reason."""
    answer = await gate.enter_all(limits)
    assert isinstance(answer, Refusal), answer
    assert answer.reason == reason
    return answer


async def test_calls_of_one_key_are_as_far_apart_as_its_rate(gate: ProcessGate) -> None:
    waits = [(await enter(gate, tenant(rate=20))).wait for _ in range(6)]

    assert waits == [0, 0.05, 0.1, 0.15, 0.2, 0.25]


async def test_refused_calls_come_back_at_instants_of_their_own(gate: ProcessGate) -> None:
    """Otherwise most of them would be refused again, by way of the database."""
    for _ in range(6):
        await enter(gate, tenant(rate=20))

    afters = [(await refused(gate, "rate_limited", tenant(rate=20))).after for _ in range(3)]

    assert [after / MILLISECOND for after in afters] == [175, 225, 275]


async def test_a_refusal_names_the_key(gate: ProcessGate) -> None:
    await enter(gate, tenant(concurrency=1), provider(concurrency=5))

    refusal = await refused(
        gate, "concurrency_limited", provider(concurrency=5), tenant(concurrency=1)
    )

    assert refusal.key == "tenant:42"


async def test_a_refused_call_uses_nothing_up(gate: ProcessGate) -> None:
    """Neither a place of a key that had one, nor an instant of its rate."""
    held = await enter(gate, tenant(concurrency=1))
    for _ in range(3):
        await refused(
            gate, "concurrency_limited", provider(rate=1, concurrency=1), tenant(concurrency=1)
        )

    assert (await enter(gate, provider(rate=1, concurrency=1))).wait == 0
    await gate.leave_all(held)
    assert (await enter(gate, tenant(concurrency=1))).permits


async def test_a_call_starts_at_one_instant_that_is_free_for_all_its_keys(
    gate: ProcessGate,
) -> None:
    await enter(gate, tenant(rate=5))
    await enter(gate, provider(rate=10))

    both = await enter(gate, tenant(rate=5), provider(rate=10))

    assert both.wait == 0.2


async def test_a_slow_key_costs_a_fast_one_nothing(gate: ProcessGate) -> None:
    """The instants of the provider before a call that waits for its tenant stay free.

    Otherwise a hot tenant would slow down all tenants of its provider to its own rate.
    """
    await enter(gate, tenant(rate=5), provider(rate=20))
    later = await enter(gate, tenant(rate=5), provider(rate=20))

    waits = [(await enter(gate, provider(rate=20))).wait for _ in range(4)]

    assert later.wait == 0.2
    assert waits == [0.05, 0.1, 0.15, 0.25]


async def test_a_key_without_a_concurrency_needs_no_return(gate: ProcessGate) -> None:
    """That is one call to Redis less."""
    admission = await enter(gate, tenant(rate=1_000), provider(concurrency=1))

    assert [permit.key for permit in admission.permits] == ["provider:stripe"]


async def test_a_permit_of_a_dead_worker_expires(gate: ProcessGate, clock: FakeClock) -> None:
    await enter(gate, tenant(concurrency=1))

    clock.advance(29 * SECOND)
    await refused(gate, "concurrency_limited", tenant(concurrency=1))
    clock.advance(SECOND)

    await enter(gate, tenant(concurrency=1))


async def test_leaving_twice_is_harmless(gate: ProcessGate) -> None:
    admission = await enter(gate, tenant(concurrency=1))

    await gate.leave_all(admission)
    await gate.leave_all(admission)

    await enter(gate, tenant(concurrency=1))
    await refused(gate, "concurrency_limited", tenant(concurrency=1))


# Random histories: both gates agree, and no key ever exceeds its rate.


@dataclass(frozen=True, slots=True)
class Enter:
    """A call under the limits with these numbers."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """One of the entered calls ends."""

    which: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Time passes."""

    by: timedelta


Step = Enter | Leave | Advance

KEYS = 3
some_limits = st.tuples(
    *(
        st.builds(
            Limit,
            key=st.just(str(number)),
            rate=st.sampled_from([None, 0.5, 7, 20, 20, 1_000, 3_000]),
            concurrency=st.none() | st.integers(1, 6),
            permit_ttl=st.sampled_from([SECOND, 30 * SECOND]),
        )
        for number in range(KEYS)
    )
)
some_keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=KEYS, unique=True).map(tuple)
lengths = st.sampled_from([MILLISECOND, 37 * MILLISECOND, 125 * MILLISECOND, SECOND, 700 * SECOND])
steps = st.one_of(
    st.builds(Enter, keys=some_keys),
    st.builds(Enter, keys=some_keys),
    st.builds(Enter, keys=some_keys),
    st.builds(Leave, which=st.integers(0, 20)),
    st.builds(Advance, by=lengths),
)


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
def test_both_gates_give_the_same_answers_and_keep_every_rate(redis_server: RedisServer) -> None:
    """Whatever keys meet in a call, starts of one key are never closer than its rate allows."""
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
        @given(limits=some_limits, history=st.lists(steps, min_size=5, max_size=60))
        def compare(limits: tuple[Limit, ...], history: Sequence[Step]) -> None:
            prefix = f"keys:{next(numbers)}:"
            runner.run(_run_history(client, limits, history, prefix=prefix))

        compare()

        runner.run(client.aclose())


async def _run_history(
    client: Client, limits: tuple[Limit, ...], history: Sequence[Step], *, prefix: str
) -> None:
    clock = FakeClock(START)
    local = LocalGate(clock, chance=lambda: 0.3)
    redis = RedisGate(client, clock=clock, chance=lambda: 0.3, prefix=prefix, timeout=PATIENT)
    held: list[tuple[Admission, Admission]] = []
    starts: dict[str, list[float]] = defaultdict(list)
    for step in history:
        match step:
            case Enter(keys):
                asked = [limits[key] for key in keys]
                answers = await local.enter_all(asked), await redis.enter_all(asked)
                assert _comparable(answers[0]) == _comparable(answers[1])
                if isinstance(answers[0], Admission) and isinstance(answers[1], Admission):
                    held.append((answers[0], answers[1]))
                    at = clock.now().timestamp() + answers[0].wait
                    for limit in asked:
                        starts[limit.key].append(at)
            case Leave(which) if held:
                admissions = held.pop(which % len(held))
                await local.leave_all(admissions[0])
                await redis.leave_all(admissions[1])
            case Leave():
                pass
            case Advance(by):
                clock.advance(by)
    for limit in limits:
        if limit.rate is not None:
            for one, other in pairwise(sorted(starts[limit.key])):
                assert other - one >= 1 / limit.rate - 0.000_002


def _comparable(answer: Admission | Refusal) -> tuple[object, ...]:
    """Return what must be equal; permit ids differ."""
    if isinstance(answer, Refusal):
        return answer.reason, answer.after, answer.key
    return answer.wait, [permit.key for permit in answer.permits]
