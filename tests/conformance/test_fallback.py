"""When Redis dies, hangs or never starts, deliveries continue under limits per process."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.base.clock import FakeClock
from penstock.base.meter import Meter
from penstock.integrations.redis.client import Client, RedisUnavailable, connect
from penstock.integrations.redis.fallback import RETRY_EVERY, FallbackGate
from penstock.integrations.redis.gate import UNRETURNED_MAX, RedisGate
from penstock.limits.gate import Permit, Rules
from penstock.limits.local import LocalGate
from tests.conformance.scene import KEY, MILLISECOND, RULES, SECOND, call, enter, refused
from tests.fault.waiting import until
from tests.ports import free_port
from tests.redis_server import RedisServer, running_redis

RULES_OF_TWO = Rules(concurrency=2)
TIMEOUT = 2 * SECOND  # Longer than by default: on a busy machine a sound answer may take that.


class RecordedLog:
    """A log that records its events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.values: list[dict[str, Any]] = []

    def _add(self, event: str, **values: Any) -> None:
        self.events.append(event)
        self.values.append(values)

    debug = info = warning = error = _add

    def bind(self, **_values: Any) -> "RecordedLog":
        return self


@dataclass(slots=True)
class Scene:
    """A gate over a real Redis, with its log and its metrics."""

    server: RedisServer
    client: Client
    clock: FakeClock
    log: RecordedLog = field(default_factory=RecordedLog)
    meter: Meter = field(default_factory=Meter)
    shared: RedisGate = field(init=False)
    gate: FallbackGate = field(init=False)
    _gates: list[RedisGate] = field(default_factory=list[RedisGate])

    def __post_init__(self) -> None:
        self.shared = self._another_shared()
        self.gate = self.another()

    async def close(self) -> None:
        """Close the client after all permits are returned."""
        for gate in self._gates:
            await gate.released()
        await self.client.aclose()

    def another(self) -> FallbackGate:
        """Make the gate of another worker."""
        return FallbackGate(
            self._another_shared(),
            LocalGate(self.clock),
            log=self.log,
            meter=self.meter,
            now=lambda: self.clock.now().timestamp(),
        )

    def _another_shared(self) -> RedisGate:
        self._gates.append(RedisGate(self.client, timeout=TIMEOUT))
        return self._gates[-1]

    def count(self, name: str) -> float:
        return self.meter.counters.get((name, ()), 0)


@pytest.fixture
def server(tmp_path: Path) -> Generator[RedisServer]:
    """A server that this test may kill."""
    with running_redis(tmp_path) as started:
        yield started


@pytest.fixture
async def scene(server: RedisServer, clock: FakeClock) -> AsyncGenerator[Scene]:
    made = Scene(server, connect(server.url), clock)
    yield made
    await made.close()


@pytest.mark.covers("B54")
async def test_without_redis_a_local_semaphore_applies(scene: Scene) -> None:
    assert not (await enter(scene.gate, RULES_OF_TWO)).is_local

    scene.server.kill()

    held = [await enter(scene.gate, RULES_OF_TWO), await enter(scene.gate, RULES_OF_TWO)]
    assert all(permit.is_local for permit in held)
    await refused(scene.gate, "concurrency_limited", RULES_OF_TWO)
    await scene.gate.leave(held[0], RULES_OF_TWO, verdict="alive")
    await enter(scene.gate, RULES_OF_TWO)


async def test_without_redis_a_local_breaker_and_rate_apply(scene: Scene) -> None:
    scene.server.kill()

    await call(scene.gate, "failing", times=5)

    await refused(scene.gate, "circuit_open")
    await enter(scene.gate, Rules(rate=1), key="another")
    await refused(scene.gate, "rate_limited", Rules(rate=1), key="another")
    assert (await scene.gate.inspect(KEY)).breaker == "open"


async def test_a_hundred_callers_fall_back_and_it_is_logged_once(scene: Scene) -> None:
    await call(scene.gate, "alive")
    scene.server.kill()

    answers = await asyncio.gather(*(scene.gate.enter(KEY, RULES) for _ in range(100)))

    assert all(isinstance(answer, Permit) for answer in answers)
    assert scene.log.events == ["gate.fell_back"]
    assert scene.log.values[0]["reason"] == "ConnectionError"
    assert scene.count("gate_fallbacks_total") == 1
    assert scene.count("gate_local_enters_total") == 100


async def test_when_redis_is_back_it_is_used_again(scene: Scene) -> None:
    await call(scene.gate, "alive")
    scene.server.kill()
    await call(scene.gate, "alive", times=10)

    scene.server.start()
    assert (await enter(scene.gate)).is_local, "Redis is tried once a second"
    scene.clock.advance(RETRY_EVERY)

    assert not (await enter(scene.gate)).is_local
    assert scene.log.events == ["gate.fell_back", "gate.recovered"]
    assert scene.log.values[1]["unavailable_seconds"] == 1.0
    assert (await scene.shared.inspect(KEY)).permits_in_use == 1


async def test_a_permit_is_returned_to_the_gate_that_gave_it(scene: Scene) -> None:
    """Otherwise one gate would lose a permit and the other would have one too many."""
    before = await enter(scene.gate)
    scene.server.freeze()
    local = await enter(scene.gate, RULES_OF_TWO)
    scene.server.thaw()
    scene.clock.advance(RETRY_EVERY)
    after = await enter(scene.gate)
    assert [each.is_local for each in (before, local, after)] == [False, True, False]
    held = (await scene.shared.inspect(KEY)).permits_in_use

    await scene.gate.leave(local, RULES, verdict="alive")
    assert (await scene.shared.inspect(KEY)).permits_in_use == held
    await scene.gate.leave(before, RULES, verdict="alive")
    await scene.gate.leave(after, RULES, verdict="alive")

    assert (await scene.shared.inspect(KEY)).permits_in_use == held - 2
    scene.server.kill()
    assert (await scene.gate.inspect(KEY)).permits_in_use == 0, (
        "no permit is left in the local gate"
    )


async def test_verdicts_are_not_lost_with_redis(scene: Scene) -> None:
    held = [await enter(scene.gate) for _ in range(5)]
    scene.server.kill()

    for each in held[:4]:
        await scene.gate.leave(each, RULES, verdict="failing")
    await scene.gate.leave(held[4], RULES, verdict="failing", cooldown=3600 * SECOND)

    assert await refused(scene.gate, "circuit_open") > 3600 * SECOND


async def test_a_redis_that_hangs_delays_only_the_first_calls(scene: Scene) -> None:
    """Frozen, it accepts connections and never answers."""
    await call(scene.gate, "alive")
    scene.server.freeze()

    started = time.monotonic()
    first = await asyncio.gather(*(scene.gate.enter(KEY, RULES) for _ in range(50)))
    waited = time.monotonic() - started
    started = time.monotonic()
    await call(scene.gate, "alive", times=20)
    later = time.monotonic() - started

    scene.server.thaw()
    assert all(isinstance(answer, Permit) and answer.is_local for answer in first)
    one = TIMEOUT.total_seconds()
    assert 0.8 * one < waited < 10 * one, "two batches of one timeout each, on a busy machine"
    assert later < one, "none of twenty calls waits for Redis"
    assert scene.log.values[0]["reason"] == "TimeoutError"


async def test_deliveries_work_without_redis_from_the_start(
    clock: FakeClock, tmp_path: Path
) -> None:
    scene = Scene(RedisServer(tmp_path), connect(f"redis://127.0.0.1:{free_port()}/0"), clock)

    await call(scene.gate, "alive", times=3)

    assert scene.log.events == ["gate.fell_back"]
    await scene.close()


async def test_one_caller_a_second_tries_redis_again(clock: FakeClock, tmp_path: Path) -> None:
    """All other callers would wait for a refused or hanging connection."""
    tries = 0

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        scene = Scene(RedisServer(tmp_path), connect(f"redis://127.0.0.1:{port}/0"), clock)

        for second in range(1, 4):
            for _ in range(10):
                await call(scene.gate, "alive")
            assert tries == second
            clock.advance(RETRY_EVERY)

        await scene.close()
    assert scene.log.events == ["gate.fell_back"]


async def test_a_restarted_redis_causes_no_fallback(scene: Scene) -> None:
    """An idle connection that the server has closed is replaced."""
    await call(scene.gate, "alive")

    scene.server.kill()
    await asyncio.to_thread(scene.server.start)

    assert not (await enter(scene.gate)).is_local
    assert scene.log.events == []


async def test_two_workers_without_redis_each_have_all_permits(scene: Scene) -> None:
    """Limits are per process then, as documented."""
    scene.server.kill()
    other = scene.another()

    for gate in (scene.gate, other):
        for _ in range(2):
            await enter(gate, RULES_OF_TWO)
        await refused(gate, "concurrency_limited", RULES_OF_TWO)


OUTAGES = {
    "read-only": (RedisServer.refuse_writes, RedisServer.accept_writes),
    "frozen": (RedisServer.freeze, RedisServer.thaw),
    "out of memory": (RedisServer.fill_memory, RedisServer.free_memory),
}
SLOW = Rules(rate=0.001)  # The second call is refused, which is the one write that needs memory.
RETURNED_WITHIN = 30.0  # Seconds; a second on a quiet machine.


@pytest.mark.covers("B55")
@pytest.mark.parametrize("outage", OUTAGES)
async def test_permits_of_calls_that_end_while_redis_is_unavailable_are_returned(
    scene: Scene, outage: str
) -> None:
    """Otherwise a busy subscription is blocked after the outage until its permits expire."""
    begin, end = OUTAGES[outage]
    await enter(scene.gate, SLOW, key="slow")
    held = [await enter(scene.gate, RULES_OF_TWO) for _ in range(2)]
    begin(scene.server)
    assert (await enter(scene.gate, SLOW, key="slow")).is_local

    for each in held:
        await scene.gate.leave(each, RULES_OF_TWO, verdict="alive")
    end(scene.server)
    scene.clock.advance(RETRY_EVERY)

    again = [await enter(scene.gate, RULES_OF_TWO) for _ in range(2)]
    assert [permit.is_local for permit in again] == [False, False]
    assert scene.log.events == ["gate.fell_back", "gate.recovered"]
    assert scene.log.values[1]["returned_count"] >= 2


@pytest.mark.parametrize("outage", ["read-only", "frozen"])
async def test_a_permit_whose_return_fails_is_returned_without_another_call(
    scene: Scene, outage: str
) -> None:
    """Other workers wait for the permits of one that has no more to do."""
    begin, end = OUTAGES[outage]
    held = [await enter(scene.gate, RULES_OF_TWO) for _ in range(2)]
    begin(scene.server)

    for each in held:
        await scene.gate.leave(each, RULES_OF_TWO, verdict="alive")
    end(scene.server)

    await until(partial(is_free, scene), within=RETURNED_WITHIN)
    await enter(scene.another(), RULES_OF_TWO)


async def test_permits_that_a_frozen_redis_gives_too_late_are_returned(scene: Scene) -> None:
    """It executes what it was sent when it goes on; the callers have fallen back by then."""
    await call(scene.gate, "alive")
    scene.server.freeze()
    assert (await enter(scene.gate, RULES_OF_TWO)).is_local
    scene.clock.advance(RETRY_EVERY)
    assert (await enter(scene.gate, RULES_OF_TWO)).is_local, "also the one that tries Redis again"

    scene.server.thaw()
    scene.clock.advance(RETRY_EVERY)

    again = [await enter(scene.gate, RULES_OF_TWO) for _ in range(2)]
    assert [permit.is_local for permit in again] == [False, False]


async def test_a_returned_probe_makes_room_for_another(scene: Scene) -> None:
    """A half-open breaker would refuse all calls until its lost probes expire."""
    rules = Rules(failures_max=1, open_for=MILLISECOND, probes_max=1)
    await call(scene.gate, "failing", rules)
    await until(partial(is_half_open, scene), within=RETURNED_WITHIN)
    probe = await enter(scene.gate, rules)
    assert probe.is_probe
    scene.server.refuse_writes()
    await scene.gate.leave(probe, rules, verdict="unknown")

    scene.server.accept_writes()
    scene.clock.advance(RETRY_EVERY)

    assert (await enter(scene.gate, rules)).is_probe


async def test_a_stopping_worker_returns_its_permits(scene: Scene) -> None:
    permit = await enter(scene.shared)
    scene.server.refuse_writes()
    with pytest.raises(RedisUnavailable):
        await scene.shared.leave(permit, RULES, verdict="unknown")
    scene.server.accept_writes()

    await scene.shared.released()

    assert await is_free(scene)


async def test_a_permit_under_a_key_of_another_program_does_not_stop_the_others(
    scene: Scene,
) -> None:
    foreign, sound = await enter(scene.gate, key="foreign"), await enter(scene.gate, RULES_OF_TWO)
    await scene.client.execute_command("SET", "sem:foreign", "a string")
    scene.server.refuse_writes()
    await scene.gate.leave(foreign, RULES, verdict="alive")
    await scene.gate.leave(sound, RULES_OF_TWO, verdict="alive")

    scene.server.accept_writes()
    scene.clock.advance(RETRY_EVERY)

    assert not (await enter(scene.gate, RULES_OF_TWO)).is_local
    assert (await scene.shared.inspect(KEY)).permits_in_use == 1


async def test_the_memory_of_unreturned_permits_is_limited(scene: Scene) -> None:
    """The oldest are forgotten, and expire."""
    permits = [
        Permit(key=KEY, id=f"permit-{n}", wait=0, entered_at=0) for n in range(UNRETURNED_MAX + 1)
    ]

    for each in permits:
        scene.shared.return_later(each)
    await scene.shared.released()

    assert scene.shared.returned_late_count == UNRETURNED_MAX


async def is_free(scene: Scene) -> bool:
    return (await scene.shared.inspect(KEY)).permits_in_use == 0


async def is_half_open(scene: Scene) -> bool:
    return (await scene.shared.inspect(KEY)).breaker == "half_open"
