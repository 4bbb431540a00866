"""The connection pool: when a connection is reused, for how long, and when it must not be."""

import asyncio
import ssl
from datetime import timedelta

import pytest
import trustme

from penstock.base.aio import spawn
from penstock.integrations.http_client import Client, PoolLimits
from tests.integrations.http_client.scene import (
    LOOPBACK,
    block_until_readable,
    fail,
    following_up,
    knowing,
    post,
    route_to,
)
from tests.receiver import PATIENCE, Close, Raw, Reply, receiving

BRIEF = timedelta(milliseconds=60)
UNREQUESTED = b"HTTP/1.1 500 Poison\r\nContent-Length: 6\r\n\r\npoison"
SOUND = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_requests_one_after_another_share_a_connection() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        route = route_to(receiver)
        for _ in range(20):
            await client.post(route, (), b"{}", timeout=PATIENCE)

        assert client.stats().opened_total == 1
    assert [request.connection for request in receiver.requests] == [1] * 20


async def test_paths_of_one_origin_share_a_connection_and_other_names_do_not() -> None:
    """The certificate was checked for one name; another name at the same address needs its own."""
    lookup = knowing({"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]})
    async with receiving() as receiver, Client(LOOPBACK, lookup=lookup) as client:
        for host, path in [("a.test", "/1"), ("a.test", "/2"), ("b.test", "/1"), ("A.TEST.", "/3")]:
            await post(client, receiver.url_of(host, path))

    assert [request.connection for request in receiver.requests] == [1, 1, 2, 1]


@pytest.mark.parametrize("ending", [Close(), Close(is_reset=True)], ids=["end", "reset"])
async def test_a_request_that_was_sent_is_never_sent_again(ending: Close) -> None:
    """The server may have processed it: that is for an attempt of its own, with its record."""
    async with receiving(answers=[200, ending, 202]) as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await fail(client, receiver, "closed", body=b"once")
        response = await post(client, receiver, b"another")

    assert response.status == 202
    assert [request.body for request in receiver.requests[1:]] == [b"once", b"another"]
    assert [request.connection for request in receiver.requests] == [1, 1, 2]


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("behind", [None, UNREQUESTED], ids=["end", "unrequested response"])
async def test_what_arrives_on_an_idle_connection_is_noticed_before_it_is_reused(
    behind: bytes | None, is_tls: bool
) -> None:
    """Also what the event loop has not read yet, because it was busy."""
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trusted = ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(trusted)
    with following_up(behind, tls=served if is_tls else None) as server:
        async with Client(LOOPBACK, tls=trusted) as client:
            first = await post(client, server.url)
            server.follow_up()
            block_until_readable(client)

            second = await post(client, server.url)

    assert (first.body, second.body) == (b"1", b"2")
    assert client.stats().opened_total == 2


async def test_a_response_that_breaks_off_is_a_failure() -> None:
    answers = [200, Raw([b"HTTP/1.1 2"]), 200]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await fail(client, receiver, "closed")

    assert len(receiver.requests) == 2


async def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    async with receiving(answers=[Close(), 200]) as receiver, Client(LOOPBACK) as client:
        await fail(client, receiver, "closed")

    assert len(receiver.requests) == 1


async def test_a_connection_that_the_server_closes_while_idle_leaves_the_pool() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        receiver.hang_up()
        await receiver.until(lambda: receiver.closed_count == 1)

        response = await post(client, receiver)

        assert client.stats().open_count == 1
    assert response.status == 200
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("behind", [UNREQUESTED, b"H", b"x"])
@pytest.mark.parametrize("is_at_once", [True, False], ids=["together", "later"])
async def test_an_unrequested_response_is_never_returned(behind: bytes, is_at_once: bool) -> None:
    """The second of two responses must not be recorded for the next event."""
    writes = [SOUND + behind] if is_at_once else [SOUND, behind]
    answers = [Raw(writes, is_last=False), Reply(202)]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        first = await post(client, receiver)
        await receiver.until(lambda: receiver.closed_count == 1)
        second = await post(client, receiver)

    assert (first.status, first.body) == (200, b"ok")
    assert second.status == 202
    assert [request.connection for request in receiver.requests] == [1, 2]


async def test_an_idle_connection_is_closed_after_the_idle_time() -> None:
    limits = PoolLimits(idle_time=BRIEF)
    async with receiving() as receiver, Client(LOOPBACK, limits=limits) as client:
        await post(client, receiver)

        await receiver.until(lambda: receiver.closed_count == 1)

        assert client.stats().open_count == 0
        assert (await post(client, receiver)).status == 200


async def test_a_connection_is_closed_after_its_lifetime() -> None:
    """It keeps its address, so a change in DNS takes effect when it ends."""
    limits = PoolLimits(lifetime=timedelta(0))
    async with receiving() as receiver, Client(LOOPBACK, limits=limits) as client:
        for _ in range(3):
            await post(client, receiver)

        assert client.stats().open_count == 0
    assert [request.connection for request in receiver.requests] == [1, 2, 3]


async def test_idle_connections_per_origin_are_limited() -> None:
    answer = asyncio.Event()
    async with (
        receiving(answers=[Reply(after=answer)]) as receiver,
        Client(LOOPBACK, limits=PoolLimits(idle_per_origin_max=3)) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [spawn(group, post(client, receiver)) for _ in range(8)]
        await receiver.wait_for(8)
        answer.set()
        await asyncio.wait(tasks)

        assert (client.stats().open_count, client.stats().idle_count) == (3, 3)
        await receiver.until(lambda: receiver.closed_count == 5)


async def test_an_origin_without_connections_uses_no_memory() -> None:
    """Users choose the origins, and a client runs for months."""
    answers = [Reply(is_last=True), Reply(), Raw([SOUND + b"x"])]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        for _ in range(3):
            await post(client, receiver)
        assert client._pool._idle == {}

        assert client._pool._open == set()
