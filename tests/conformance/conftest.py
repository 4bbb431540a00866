"""One real Redis per session, emptied for each test, and the gates that must behave the same."""

from collections.abc import AsyncGenerator, Generator

import pytest

from penstock.base.clock import FakeClock
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.integrations.redis.client import Client, connect
from penstock.integrations.redis.fallback import FallbackGate
from penstock.integrations.redis.gate import RedisGate
from penstock.limits.gate import ProcessGate
from penstock.limits.local import LocalGate
from tests.conformance.scene import PATIENT
from tests.redis_server import RedisServer, running_redis

CHANCE = 0.5  # The random number of all gates, so that a refusal is predictable.


def chance() -> float:
    return CHANCE


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer]:
    """The session's server; tests that kill one start their own."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncGenerator[Client]:
    """A client of an empty Redis."""
    client = connect(redis_server.url)
    await client.execute_command("FLUSHALL")
    yield client
    await client.aclose()


@pytest.fixture(params=["local", "redis", "fallback"])
def gate(request: pytest.FixtureRequest, clock: FakeClock) -> ProcessGate:
    """Every implementation of a process's gate, on the test's clock."""
    local = LocalGate(clock, chance=chance)
    if request.param == "local":
        return local
    client: Client = request.getfixturevalue("redis")
    shared = RedisGate(client, clock=clock, chance=chance, timeout=PATIENT)
    if request.param == "redis":
        return shared
    return FallbackGate(shared, local, log=get_logger(), meter=Meter())
