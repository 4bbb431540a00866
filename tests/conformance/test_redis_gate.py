"""The Redis gate is shared by all workers, and its keys expire."""

import asyncio
import inspect
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import pytest
from redis import exceptions as vendor

from penstock.base.clock import FakeClock
from penstock.base.errors import BadSetting
from penstock.integrations.redis.client import FAILURES, Client, RedisUnavailable, connect
from penstock.integrations.redis.gate import RedisGate
from penstock.limits.gate import KeyStatus, Permit, Refusal, Rules
from tests.conformance.scene import KEY, MILLISECOND, PATIENT, RULES, SECOND, call, enter, refused
from tests.fault.waiting import until
from tests.redis_server import RedisServer, running_redis


@pytest.fixture
def own_server(tmp_path: Path) -> Generator[RedisServer]:
    """A server that this test may freeze."""
    with running_redis(tmp_path) as server:
        yield server


@pytest.mark.covers("B49")
async def test_all_workers_see_the_same_breaker(redis: Client, clock: FakeClock) -> None:
    """Each has seen too few failures to open a breaker on its own."""
    workers = [RedisGate(redis, clock=clock, timeout=PATIENT) for _ in range(5)]

    for worker in workers:
        await call(worker, "failing")

    for worker in workers:
        await refused(worker, "circuit_open")
    clock.advance(30 * SECOND)
    probes = [await enter(worker) for worker in workers[:3]]
    await refused(workers[3], "circuit_open")
    await workers[0].leave(probes[0], RULES, verdict="alive")
    assert (await workers[4].inspect(KEY)).breaker == "closed"


async def test_all_workers_see_the_same_cooldown(redis: Client, clock: FakeClock) -> None:
    one, other = (
        RedisGate(redis, clock=clock, timeout=PATIENT),
        RedisGate(redis, clock=clock, timeout=PATIENT),
    )

    await one.leave(await enter(one), RULES, verdict="alive", cooldown=SECOND)

    await refused(other, "cooldown")


@pytest.mark.covers("B50")
async def test_four_workers_together_keep_the_rate(
    redis: Client, redis_server: RedisServer, clock: FakeClock
) -> None:
    """Also on separate connections, and with calls at the same moment."""
    second = connect(redis_server.url)
    workers = [
        RedisGate(client, clock=clock, timeout=PATIENT) for client in (redis, redis, second, second)
    ]
    rules = Rules(rate=100, concurrency=100_000)
    starts: list[float] = []

    for _ in range(200):
        now = clock.now().timestamp()
        answers = await asyncio.gather(*(worker.enter(KEY, rules) for worker in workers * 3))
        starts += [now + answer.wait for answer in answers if isinstance(answer, Permit)]
        clock.advance(20 * MILLISECOND)

    await second.aclose()
    distances = [later - earlier for earlier, later in pairwise(sorted(starts))]
    assert min(distances) == pytest.approx(0.01, abs=1e-6), "never more than 100 in any second"
    assert max(distances) == pytest.approx(0.01, abs=1e-6), "and never less"
    assert len(starts) >= 400


@pytest.mark.covers("B52")
async def test_four_workers_together_have_a_hundred_calls_in_progress(
    redis: Client, redis_server: RedisServer, clock: FakeClock
) -> None:
    second = connect(redis_server.url)
    workers = [
        RedisGate(client, clock=clock, timeout=PATIENT) for client in (redis, redis, second, second)
    ]

    answers = await asyncio.gather(*(worker.enter(KEY, RULES) for worker in workers * 100))

    await second.aclose()
    assert sum(isinstance(answer, Permit) for answer in answers) == 100
    ids = {answer.id for answer in answers if isinstance(answer, Permit)}
    assert len(ids) == 100, "no two workers give the same permit id"


@pytest.mark.covers("B55")
async def test_the_keys_are_named_after_the_subscription(redis: Client, clock: FakeClock) -> None:
    """Operators inspect them by the documented names."""
    await use_everything(RedisGate(redis, clock=clock, timeout=PATIENT))

    assert await keys_of(redis) == {
        "breaker:sub-123",
        "cooldown:sub-123",
        "rate:sub-123",
        "sem:sub-123",
    }


async def test_a_prefix_keeps_two_installations_apart(redis: Client, clock: FakeClock) -> None:
    one = RedisGate(redis, clock=clock, timeout=PATIENT, prefix="one:")
    other = RedisGate(redis, clock=clock, timeout=PATIENT, prefix="other:")

    await use_everything(one)

    assert await keys_of(redis) == {
        f"one:{part}:{KEY}" for part in ("breaker", "cooldown", "rate", "sem")
    }
    assert await other.inspect(KEY) == KeyStatus()


async def test_every_key_expires(redis: Client, clock: FakeClock) -> None:
    """Subscriptions are deleted. A breaker is kept for an hour, all other keys for less."""
    await use_everything(RedisGate(redis, clock=clock, timeout=PATIENT))

    for key in await keys_of(redis):
        ttl_ms = await redis.execute_command("PTTL", key)
        longest = 3700_000 if key.startswith("breaker") else 200_000
        assert 0 < ttl_ms < longest, key


async def test_successful_calls_without_a_rate_leave_no_key(
    redis: Client, clock: FakeClock
) -> None:
    await call(RedisGate(redis, clock=clock, timeout=PATIENT), "alive", times=10)

    assert await keys_of(redis) == set()


async def test_the_clock_of_the_server_decides(redis: Client) -> None:
    """The clocks of workers differ."""
    gate = RedisGate(redis, timeout=PATIENT)
    rules = Rules(rate=1, permit_ttl=PATIENT)

    before = time.time()
    first = await enter(gate, rules)
    after = await refused(gate, "rate_limited", rules)

    assert before - 1 < first.entered_at / 1_000_000 < time.time() + 1
    assert after < SECOND
    assert (await gate.inspect(KEY)).permits_in_use == 1


async def test_a_server_that_has_lost_the_scripts_is_sent_them_again(
    redis: Client, clock: FakeClock
) -> None:
    gate = RedisGate(redis, clock=clock, timeout=PATIENT)
    rules = Rules(concurrency=2)
    held = await enter(gate, rules)
    await redis.execute_command("SCRIPT", "FLUSH")

    await asyncio.gather(gate.leave(held, rules, verdict="alive"), enter(gate, rules))

    assert (await gate.inspect(KEY)).permits_in_use == 1


async def test_each_call_of_a_batch_gets_its_own_answer(redis: Client, clock: FakeClock) -> None:
    gate = RedisGate(redis, clock=clock, timeout=PATIENT)
    rules = {f"key-{n}": Rules(rate=n) for n in range(1, 51)}
    first = await asyncio.gather(*(gate.enter(key, each) for key, each in rules.items()))
    assert [answer.key for answer in first if isinstance(answer, Permit)] == list(rules)

    second = await asyncio.gather(*(gate.enter(key, each) for key, each in rules.items()))

    for n, answer in enumerate(second, start=1):
        if n < 4:
            assert isinstance(answer, Refusal)
        else:
            assert isinstance(answer, Permit)
            assert answer.wait == pytest.approx(1 / n, abs=1e-6)


@pytest.mark.covers("B55")
async def test_a_caller_cancelled_while_entering_holds_no_permit(own_server: RedisServer) -> None:
    """Redis has given a permit that no caller knows of; a stop must not use permits up."""
    client = connect(own_server.url)
    gate = RedisGate(client, timeout=PATIENT)
    rules = Rules(rate=0.1)
    await call(gate, "alive", key="connected")

    own_server.freeze()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.enter(KEY, rules), timeout=0.1)
    own_server.thaw()

    await gate.released()
    assert await client.execute_command("EXISTS", f"rate:{KEY}"), "Redis has admitted the call"
    assert (await gate.inspect(KEY)).permits_in_use == 0
    await client.aclose()


async def test_a_caller_whose_answer_was_too_late_holds_no_permit(own_server: RedisServer) -> None:
    """A Redis that stalls for a moment admits callers that have fallen back by then."""
    client = connect(own_server.url)
    gate, patient = RedisGate(client), RedisGate(client, timeout=PATIENT)
    rules = Rules(rate=0.1)
    await call(patient, "alive", key="connected")

    own_server.freeze()
    with pytest.raises(RedisUnavailable):
        await gate.enter(KEY, rules)
    own_server.thaw()

    async def is_free() -> bool:
        was_admitted = await client.execute_command("EXISTS", f"rate:{KEY}")
        return bool(was_admitted) and (await patient.inspect(KEY)).permits_in_use == 0

    await until(is_free, within=10)
    await gate.released()
    await client.aclose()


async def test_closing_after_the_releases_leaves_no_connection_open(
    own_server: RedisServer,
) -> None:
    """A permit may be returned over a connection that is still being opened."""
    client = connect(own_server.url)
    gate = RedisGate(client)
    await call(RedisGate(client, timeout=PATIENT), "alive", key="connected")
    own_server.freeze()
    with pytest.raises(RedisUnavailable):
        await gate.enter(KEY, RULES)
    own_server.thaw()

    await gate.released()
    await client.aclose()

    other = connect(own_server.url)

    async def is_alone() -> bool:
        return len((await other.execute_command("CLIENT", "LIST")).splitlines()) == 1

    await until(is_alone, within=10)
    await other.aclose()


@pytest.mark.covers("B55")
async def test_a_caller_cancelled_while_leaving_returns_its_permit(own_server: RedisServer) -> None:
    """Also when its leave was still queued behind another call and not yet sent."""
    client = connect(own_server.url)
    gate = RedisGate(client, timeout=PATIENT)
    sent, queued = await enter(gate), await enter(gate)

    own_server.freeze()
    for held in (sent, queued):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gate.leave(held, RULES, verdict="failing"), timeout=0.1)
    own_server.thaw()

    await gate.released()
    assert (await gate.inspect(KEY)).permits_in_use == 0
    await client.aclose()


async def test_a_key_of_another_program_is_reported(redis: Client, clock: FakeClock) -> None:
    """Two programs share one Redis without a prefix: report it instead of guessing."""
    await redis.execute_command("SET", f"sem:{KEY}", "a string")

    with pytest.raises(RedisUnavailable) as raised:
        await RedisGate(redis, clock=clock, timeout=PATIENT).enter(KEY, RULES)

    assert raised.value.reason == "ResponseError"


async def test_an_invalid_address_is_refused_at_once() -> None:
    with pytest.raises(BadSetting):
        connect("mailto:somebody")


def test_every_exception_of_the_client_library_is_translated() -> None:
    """An exception that is missed would cost a delivery an attempt."""
    of_a_cluster_or_a_fork = {
        "ChildDeadlockedError",
        "CrossSlotTransactionError",
        "IncorrectPolicyType",
        "InvalidPipelineStack",
        "RedisClusterException",
        "SlotNotCoveredError",
    }

    missed = {
        name
        for name, kind in inspect.getmembers(vendor, inspect.isclass)
        if issubclass(kind, Exception) and not issubclass(kind, FAILURES)
    }

    assert missed == of_a_cluster_or_a_fork


async def use_everything(gate: RedisGate) -> None:
    """Write every key: a failure, an instant, a permit in use, a cooldown."""
    rules = Rules(rate=100, concurrency=2)
    held = [await enter(gate, rules), await enter(gate, rules)]
    await refused(gate, "concurrency_limited", rules)
    await gate.leave(held[0], rules, verdict="failing", cooldown=SECOND)


async def keys_of(redis: Client) -> set[str]:
    return {key.decode() for key in await redis.execute_command("KEYS", "*")}
