"""One broker for all tests of this folder, and for each test topics and a group of its own.

The folder is a package, so that its brokers end with its tests: an idle one uses CPU time too.
"""

import itertools
from collections.abc import Generator
from secrets import token_hex

import pytest

from tests.conftest import BROKERS
from tests.integrations.kafka.scene import Stream
from tests.kafka_broker import Broker, RealBroker, running_broker

SESSION = token_hex(4)  # A broker that is given may remember others.

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def broker(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Generator[Broker]:
    """The folder's broker; tests that kill one start their own."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as started:
        pytestconfig.stash[BROKERS].add(started.name)
        yield started


@pytest.fixture(scope="package")
def mortal(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Generator[Broker]:
    """A broker that tests kill; each of them revives it."""
    with running_broker(tmp_path_factory.mktemp("mortal"), own=True) as started:
        pytestconfig.stash[BROKERS].add(started.name)
        yield started


@pytest.fixture
def guarded(broker: Broker) -> RealBroker:
    """The folder's broker, if it has a listener with TLS and accounts."""
    if not isinstance(broker, RealBroker):
        pytest.skip(f"{broker.name} has no listener with TLS and accounts")
    return broker


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """Topics that nobody else uses."""
    return Stream.create(broker, f"{SESSION}.{next(_numbers)}")


@pytest.fixture
def mortal_stream(mortal: Broker) -> Stream:
    """Topics on a broker that may be killed."""
    return Stream.create(mortal, f"{SESSION}.{next(_numbers)}")
