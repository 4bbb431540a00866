"""Name resolution: every address is checked, and the connection goes to a checked one."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_network

import pytest

from penstock.base.aio import spawn
from penstock.base.errors import CallFailed, InvalidInput
from penstock.integrations.http_client import (
    Client,
    Egress,
    PoolLimits,
    parse_url,
)
from penstock.integrations.http_client.connection import _check_peer
from penstock.integrations.http_client.resolver import HostResolver, look_up
from tests.integrations.http_client.scene import LOOPBACK, fail, knowing, post
from tests.integrations.http_client.vectors import REFUSED_HOSTS
from tests.receiver import PATIENCE, receiving

ALWAYS_ASK = PoolLimits(lookup_ttl=timedelta(0), lifetime=timedelta(0))
ONLY_SECOND = Egress([ip_network("127.0.0.2/32")])
TTL = timedelta(minutes=1)


class Changing:
    """A name server whose answers change with each query, as an attacker's do."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Slow:
    """A name server that answers on demand."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        self.may_answer.wait(PATIENCE)
        return ["127.0.0.1"]


@pytest.mark.parametrize("host", REFUSED_HOSTS)
async def test_no_host_reaches_the_internal_network(host: str) -> None:
    """Each is put into a URL unchanged, and a server listens on loopback."""
    everything_is_here = Changing(["127.0.0.1"])
    async with receiving() as receiver, Client(Egress(), lookup=everything_is_here) as client:
        with pytest.raises((InvalidInput, CallFailed)) as refused:
            await post(client, f"http://{host}:{receiver.port}/")

    if isinstance(refused.value, CallFailed):
        assert refused.value.kind == "refused_address"
    assert receiver.opened_count == 0


async def test_a_rebound_name_is_refused_at_the_next_lookup() -> None:
    """First an allowed address, then an internal one: every answer is checked."""
    rebinding = Changing(["127.0.0.2"], ["127.0.0.1"])
    async with (
        receiving(host="127.0.0.2") as public,
        receiving(host="127.0.0.1", port=public.port) as internal,
        Client(ONLY_SECOND, limits=ALWAYS_ASK, lookup=rebinding) as client,
    ):
        url = public.url_of("rebind.test")

        first = await post(client, url)
        await fail(client, url, "refused_address")

    assert first.status == 200
    assert (public.opened_count, internal.opened_count) == (1, 0)


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name is not resolved again between the check and the connection."""
    rebinding = Changing(["127.0.0.2"], ["127.0.0.1"])
    everywhere = Egress([ip_network("127.0.0.0/8")])
    async with (
        receiving(host="127.0.0.2") as checked,
        receiving(host="127.0.0.1", port=checked.port) as other,
        Client(everywhere, limits=ALWAYS_ASK, lookup=rebinding) as client,
    ):
        await post(client, checked.url_of("rebind.test"))

        assert rebinding.asked == ["rebind.test"]
    assert (checked.opened_count, other.opened_count) == (1, 0)
    assert checked.requests[0].headers["host"] == f"rebind.test:{checked.port}"


async def test_a_reused_connection_keeps_its_address() -> None:
    """Its address was checked, whatever DNS answers now."""
    rebinding = Changing(["127.0.0.2"], ["127.0.0.1"])
    limits = PoolLimits(lookup_ttl=timedelta(0))
    async with (
        receiving(host="127.0.0.2") as public,
        Client(ONLY_SECOND, limits=limits, lookup=rebinding) as client,
    ):
        for _ in range(3):
            await post(client, public.url_of("rebind.test"))

    assert public.opened_count == 1
    assert rebinding.asked == ["rebind.test"]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "169.254.169.254"],
        ["127.0.0.2", "::1"],
        ["127.0.0.2", "::ffff:127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["127.0.0.2", "fe80::1%eth0"],
        ["127.0.0.2"] * 20 + ["127.0.0.1"],
    ],
)
async def test_one_refused_address_is_enough_to_refuse_a_name(addresses: Sequence[str]) -> None:
    """Public and internal addresses together are a sign of DNS rebinding."""
    lookup = knowing({"mixed.test": addresses})
    async with (
        receiving(host="127.0.0.2") as receiver,
        Client(ONLY_SECOND, lookup=lookup) as client,
    ):
        failed = await fail(client, receiver.url_of("mixed.test"), "refused_address")

    assert receiver.opened_count == 0
    assert not any(address in failed.reason for address in addresses)


async def test_the_next_address_is_tried_when_one_fails() -> None:
    lookup = knowing({"several.test": ["127.0.0.3", "127.0.0.4", "127.0.0.2"]})
    async with (
        receiving(host="127.0.0.2") as receiver,
        Client(LOOPBACK, lookup=lookup) as client,
    ):
        response = await post(client, receiver.url_of("several.test"))

    assert response.status == 200


async def test_only_a_few_addresses_are_tried() -> None:
    lookup = knowing({"many.test": [f"127.0.1.{n}" for n in range(1, 50)] + ["127.0.0.1"]})
    async with receiving() as receiver, Client(LOOPBACK, lookup=lookup) as client:
        await fail(client, receiver.url_of("many.test"), "connect")

    assert receiver.opened_count == 0


def test_a_connection_to_another_peer_is_refused() -> None:
    """The peer address of the socket is compared with the checked one."""
    transport = asyncio.Transport({"peername": ("127.0.0.1", 80)})

    _check_peer(transport, "127.0.0.1")
    with pytest.raises(CallFailed, match="refused_address"):
        _check_peer(transport, "8.8.8.8")
    with pytest.raises(CallFailed, match="connect"):
        _check_peer(asyncio.Transport({}), "127.0.0.1")


async def test_a_port_that_is_not_allowed_is_refused_when_connecting() -> None:
    """A URL may have been stored before the rule was set."""
    async with receiving() as receiver:
        egress = Egress(LOOPBACK.allow, ports=frozenset({443}))
        async with Client(egress) as client:
            await fail(client, receiver, "refused_address")

    assert receiver.opened_count == 0


async def test_a_burst_to_one_name_makes_one_lookup() -> None:
    """Ten thousand requests a second must not become as many queries."""
    slow = Slow()
    async with (
        receiving() as receiver,
        Client(LOOPBACK, lookup=slow) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [spawn(group, post(client, receiver.url_of("slow.test"))) for _ in range(20)]
        slow.may_answer.set()
        await asyncio.wait(tasks)
        await post(client, receiver.url_of("slow.test"))

    assert slow.asked == ["slow.test"]


async def test_the_deadline_covers_the_lookup() -> None:
    slow = Slow()
    async with receiving() as receiver, Client(LOOPBACK, lookup=slow) as client:
        url = receiver.url_of("slow.test")

        failed = await fail(client, url, "timeout", timeout=0.05)
        await fail(client, url, "timeout", timeout=0.05)

        assert "looking up the name" in failed.reason
        assert slow.asked == ["slow.test"]
        # The late answer serves later requests.
        slow.may_answer.set()
        assert (await post(client, url)).status == 200
        assert slow.asked == ["slow.test"]


async def test_closing_fails_pending_lookups() -> None:
    slow = Slow()
    async with Client(LOOPBACK, lookup=slow) as client, asyncio.TaskGroup() as group:
        waiting = [
            spawn(group, fail(client, f"http://{n}.slow.test/", "closed")) for n in range(40)
        ]
        while not slow.asked:
            await asyncio.wait(waiting, timeout=0.01)

        await client.close()

        await asyncio.wait(waiting)
        slow.may_answer.set()


async def test_a_failed_lookup_is_cached_briefly() -> None:
    asked: list[str] = []

    def look_up_nothing(host: str) -> Sequence[str]:
        asked.append(host)
        raise OSError(-2, "Name or service not known")

    async with Client(LOOPBACK, lookup=look_up_nothing) as client:
        for _ in range(10):
            failed = await fail(client, "http://nobody.test/", "bad_name")
            assert "Name or service not known" in failed.reason

    assert asked == ["nobody.test"]


async def test_an_unexpected_exception_of_a_lookup_is_raised() -> None:
    def broken(host: str) -> Sequence[str]:
        raise ZeroDivisionError(host)

    async with Client(LOOPBACK, lookup=broken) as client:
        with pytest.raises(ZeroDivisionError):
            await post(client, "http://nobody.test/")


async def test_the_cache_of_names_is_limited() -> None:
    lookup = Changing(["127.0.0.1"])
    resolver = HostResolver(LOOPBACK, ttl=TTL, lookup=lookup, cached_max=5)
    until = asyncio.get_running_loop().time() + PATIENCE

    for number in range(20):
        await resolver.resolve(parse_url(f"http://{number}.test/"), until=until)
    resolver.close()

    assert list(resolver._cache) == [f"{number}.test" for number in range(15, 20)]


async def test_the_systems_resolver_knows_localhost() -> None:
    """`localhost` is refused by its address."""
    addresses = look_up("localhost")

    assert set(addresses) <= {"127.0.0.1", "::1"}
    async with Client(Egress()) as client:
        await fail(client, "http://localhost:1/", "refused_address")
