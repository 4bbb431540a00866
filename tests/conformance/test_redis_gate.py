"""What the gate in Redis promises beyond what all gates do: it is shared, and it clears up."""

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
from penstock.integrations.redis.client import FAILURES, Client, RedisAway, connect
from penstock.integrations.redis.gate import RedisGate
from penstock.limits.gate import Condition, Pass, Refusal, Rules
from tests.conformance.scene import KEY, MILLISECOND, RULES, SECOND, call, let_in, refused
from tests.fault.waiting import until
from tests.redis_server import RedisServer, running_redis

PATIENT = 30 * SECOND  # For a server that is frozen on purpose.


@pytest.fixture
def own_server(tmp_path: Path) -> Generator[RedisServer]:
    """A server that this test may freeze."""
    with running_redis(tmp_path) as server:
        yield server


@pytest.mark.covers("B49")
async def test_all_workers_see_the_same_breaker(redis: Client, clock: FakeClock) -> None:
    """Each has seen too few failures to open one of its own."""
    workers = [RedisGate(redis, clock=clock) for _ in range(5)]

    for worker in workers:
        await call(worker, "failing")

    for worker in workers:
        await refused(worker, "circuit_open")
    clock.advance(30 * SECOND)
    probes = [await let_in(worker) for worker in workers[:3]]
    await refused(workers[3], "circuit_open")
    await workers[0].leave(probes[0], RULES, verdict="alive")
    assert (await workers[4].inspect(KEY)).breaker == "closed"


async def test_all_workers_rest(redis: Client, clock: FakeClock) -> None:
    one, other = RedisGate(redis, clock=clock), RedisGate(redis, clock=clock)

    await one.leave(await let_in(one), RULES, verdict="alive", rest=SECOND)

    await refused(other, "resting")


@pytest.mark.covers("B50")
async def test_four_workers_together_keep_the_rate(
    redis: Client, redis_server: RedisServer, clock: FakeClock
) -> None:
    """Also those on other connections, and whoever comes at the same moment."""
    second = connect(redis_server.url)
    workers = [RedisGate(client, clock=clock) for client in (redis, redis, second, second)]
    rules = Rules(rate=100, concurrency=100_000)
    starts: list[float] = []

    for _ in range(200):
        now = clock.now().timestamp()
        answers = await asyncio.gather(*(worker.enter(KEY, rules) for worker in workers * 3))
        starts += [now + answer.wait for answer in answers if isinstance(answer, Pass)]
        clock.advance(20 * MILLISECOND)

    await second.aclose()
    distances = [later - earlier for earlier, later in pairwise(sorted(starts))]
    assert min(distances) == pytest.approx(0.01, abs=1e-6), "never more than 100 in any second"
    assert max(distances) == pytest.approx(0.01, abs=1e-6), "and never less"
    assert len(starts) >= 400


@pytest.mark.covers("B52")
async def test_four_workers_together_have_a_hundred_calls_under_way(
    redis: Client, redis_server: RedisServer, clock: FakeClock
) -> None:
    second = connect(redis_server.url)
    workers = [RedisGate(client, clock=clock) for client in (redis, redis, second, second)]

    answers = await asyncio.gather(*(worker.enter(KEY, RULES) for worker in workers * 100))

    await second.aclose()
    assert sum(isinstance(answer, Pass) for answer in answers) == 100
    slots = {answer.slot for answer in answers if isinstance(answer, Pass)}
    assert len(slots) == 100, "no two workers give a slot the same name"


@pytest.mark.covers("B55")
async def test_the_keys_are_named_after_the_subscription(redis: Client, clock: FakeClock) -> None:
    """Operators look at them, and know them from the documentation."""
    await use_everything(RedisGate(redis, clock=clock))

    assert await keys_of(redis) == {
        "breaker:sub-123",
        "rate:sub-123",
        "rest:sub-123",
        "sem:sub-123",
    }


async def test_a_prefix_keeps_two_installations_apart(redis: Client, clock: FakeClock) -> None:
    one = RedisGate(redis, clock=clock, prefix="one:")
    other = RedisGate(redis, clock=clock, prefix="other:")

    await use_everything(one)

    assert await keys_of(redis) == {
        f"one:{part}:{KEY}" for part in ("breaker", "rate", "rest", "sem")
    }
    assert await other.inspect(KEY) == Condition()


async def test_nothing_is_left_behind_for_ever(redis: Client, clock: FakeClock) -> None:
    """Subscriptions come and go. What the breaker knows is kept for an hour, all else for less."""
    await use_everything(RedisGate(redis, clock=clock))

    for key in await keys_of(redis):
        ttl_ms = await redis.execute_command("PTTL", key)
        longest = 3700_000 if key.startswith("breaker") else 200_000
        assert 0 < ttl_ms < longest, key


async def test_who_leaves_nothing_behind_leaves_no_key(redis: Client, clock: FakeClock) -> None:
    await call(RedisGate(redis, clock=clock), "alive", times=10)

    assert await keys_of(redis) == set()


async def test_the_servers_clock_decides(redis: Client) -> None:
    """The clocks of workers differ."""
    gate = RedisGate(redis)
    rules = Rules(rate=1, slot_ttl=PATIENT)

    before = time.time()
    first = await let_in(gate, rules)
    after = await refused(gate, "rate_limited", rules)

    assert before - 1 < first.entered_at / 1_000_000 < time.time() + 1
    assert after < SECOND
    assert (await gate.inspect(KEY)).slots_in_use == 1


async def test_a_server_that_has_lost_the_scripts_gets_them_again(
    redis: Client, clock: FakeClock
) -> None:
    gate = RedisGate(redis, clock=clock)
    rules = Rules(concurrency=2)
    held = await let_in(gate, rules)
    await redis.execute_command("SCRIPT", "FLUSH")

    await asyncio.gather(gate.leave(held, rules, verdict="alive"), let_in(gate, rules))

    assert (await gate.inspect(KEY)).slots_in_use == 1


async def test_those_who_come_together_get_each_their_own_answer(
    redis: Client, clock: FakeClock
) -> None:
    gate = RedisGate(redis, clock=clock)
    rules = {f"key-{n}": Rules(rate=n) for n in range(1, 51)}
    first = await asyncio.gather(*(gate.enter(key, each) for key, each in rules.items()))
    assert [answer.key for answer in first if isinstance(answer, Pass)] == list(rules)

    second = await asyncio.gather(*(gate.enter(key, each) for key, each in rules.items()))

    for n, answer in enumerate(second, start=1):
        if n < 4:
            assert isinstance(answer, Refusal)
        else:
            assert isinstance(answer, Pass)
            assert answer.wait == pytest.approx(1 / n, abs=1e-6)


@pytest.mark.covers("B55")
async def test_who_is_cancelled_while_entering_holds_no_slot(own_server: RedisServer) -> None:
    """Redis has let it in, but nobody has heard of it: a stop would cost others their slots."""
    client = connect(own_server.url)
    gate = RedisGate(client, timeout=PATIENT)
    rules = Rules(rate=0.1)
    await call(gate, "alive", key="connected")

    own_server.freeze()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.enter(KEY, rules), timeout=0.1)
    own_server.thaw()

    await gate.released()
    assert await client.execute_command("EXISTS", f"rate:{KEY}"), "it was let in"
    assert (await gate.inspect(KEY)).slots_in_use == 0
    await client.aclose()


async def test_who_got_no_answer_in_time_holds_no_slot(own_server: RedisServer) -> None:
    """A Redis that stalls for a moment lets callers in who have gone elsewhere by then."""
    client = connect(own_server.url)
    gate = RedisGate(client)
    rules = Rules(rate=0.1)
    await call(gate, "alive", key="connected")

    own_server.freeze()
    with pytest.raises(RedisAway):
        await gate.enter(KEY, rules)
    own_server.thaw()

    async def is_free() -> bool:
        was_let_in = await client.execute_command("EXISTS", f"rate:{KEY}")
        return bool(was_let_in) and (await gate.inspect(KEY)).slots_in_use == 0

    await until(is_free, within=10)
    await gate.released()
    await client.aclose()


async def test_who_closes_after_the_releases_leaves_no_connection_open(
    own_server: RedisServer,
) -> None:
    """A slot may be on its way back over a connection that is just being made."""
    client = connect(own_server.url)
    gate = RedisGate(client)
    await call(gate, "alive", key="connected")
    own_server.freeze()
    with pytest.raises(RedisAway):
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
async def test_who_is_cancelled_while_leaving_gives_its_slot_back(own_server: RedisServer) -> None:
    """Also when its leave still stood in line behind another call, and nobody has sent it."""
    client = connect(own_server.url)
    gate = RedisGate(client, timeout=PATIENT)
    sent, in_line = await let_in(gate), await let_in(gate)

    own_server.freeze()
    for held in (sent, in_line):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gate.leave(held, RULES, verdict="failing"), timeout=0.1)
    own_server.thaw()

    await gate.released()
    assert (await gate.inspect(KEY)).slots_in_use == 0
    await client.aclose()


async def test_a_key_of_somebody_else_is_no_gate(redis: Client, clock: FakeClock) -> None:
    """Two programs in one Redis without a prefix: say so, and do not guess."""
    await redis.execute_command("SET", f"sem:{KEY}", "a string")

    with pytest.raises(RedisAway) as away:
        await RedisGate(redis, clock=clock).enter(KEY, RULES)

    assert away.value.reason == "ResponseError"


async def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(BadSetting):
        connect("mailto:somebody")


def test_every_failure_of_the_vendor_is_translated() -> None:
    """One that is missed would cost a delivery its attempt."""
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
    """Leave something in each key: a failure, an instant, a held slot, a rest."""
    rules = Rules(rate=100, concurrency=2)
    held = [await let_in(gate, rules), await let_in(gate, rules)]
    await refused(gate, "crowded", rules)
    await gate.leave(held[0], rules, verdict="failing", rest=SECOND)


async def keys_of(redis: Client) -> set[str]:
    return {key.decode() for key in await redis.execute_command("KEYS", "*")}
