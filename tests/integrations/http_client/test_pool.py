"""The connection pool: when a connection is reused, for how long, and when it must not be."""

import asyncio
from datetime import timedelta

import pytest

from penstock.base.aio import spawn
from penstock.integrations.http_client import Client, Limits
from tests.integrations.http_client.scene import LOOPBACK, fail, knowing, post, route_to
from tests.receiver import PATIENCE, Close, Raw, Reply, receiving

BRIEF = timedelta(milliseconds=60)
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


async def test_a_request_on_a_stale_connection_is_retried_on_a_new_one() -> None:
    """The server may close an idle connection just as it is reused; that is not a failure."""
    for ending in (Close(), Close(is_reset=True)):
        async with receiving(answers=[200, ending, 202]) as receiver, Client(LOOPBACK) as client:
            await post(client, receiver)
            response = await post(client, receiver, b"once more")

        assert response.status == 202
        assert [request.connection for request in receiver.requests] == [1, 1, 2]
        assert [request.body for request in receiver.requests[1:]] == [b"once more"] * 2


async def test_a_request_is_retried_once() -> None:
    """A server that always closes must not be called for ever."""
    async with receiving(answers=[200, Close()]) as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await fail(client, receiver, "closed")

    assert [request.connection for request in receiver.requests] == [1, 1, 2]


async def test_the_retry_uses_a_new_connection() -> None:
    """If one was stale, all of the same age may be."""
    answer = asyncio.Event()
    answers = [Reply(after=answer), Reply(after=answer), Close(), 202]
    async with (
        receiving(answers=answers) as receiver,
        Client(LOOPBACK) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [spawn(group, post(client, receiver)) for _ in range(2)]
        await receiver.wait_for(2)
        answer.set()
        await asyncio.wait(tasks)

        response = await post(client, receiver)

    assert response.status == 202
    assert receiver.requests[3].connection == 3


async def test_after_the_first_byte_of_a_response_there_is_no_retry() -> None:
    """The server has processed the request by then."""
    answers = [200, Raw([b"HTTP/1.1 2"]), 200]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await fail(client, receiver, "closed")

    assert len(receiver.requests) == 2


async def test_a_new_connection_that_is_closed_is_not_retried() -> None:
    async with receiving(answers=[Close(), 200]) as receiver, Client(LOOPBACK) as client:
        await fail(client, receiver, "closed")

    assert len(receiver.requests) == 1


async def test_the_retry_keeps_the_deadline() -> None:
    hanging = Raw([], is_last=False)
    async with receiving(answers=[200, Close(), hanging]) as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await fail(client, receiver, "timeout", timeout=0.15)

    assert len(receiver.requests) == 3


async def test_a_connection_that_the_server_closes_while_idle_leaves_the_pool() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        receiver.hang_up()
        await receiver.until(lambda: receiver.closed_count == 1)

        response = await post(client, receiver)

        assert client.stats().open_count == 1
    assert response.status == 200
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    "behind", [b"HTTP/1.1 500 Poison\r\nContent-Length: 6\r\n\r\npoison", b"H", b"x"]
)
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
    limits = Limits(idle_time=BRIEF)
    async with receiving() as receiver, Client(LOOPBACK, limits=limits) as client:
        await post(client, receiver)

        await receiver.until(lambda: receiver.closed_count == 1)

        assert client.stats().open_count == 0
        assert (await post(client, receiver)).status == 200


async def test_a_connection_is_closed_after_its_lifetime() -> None:
    """It keeps its address, so a change in DNS takes effect when it ends."""
    limits = Limits(lifetime=timedelta(0))
    async with receiving() as receiver, Client(LOOPBACK, limits=limits) as client:
        for _ in range(3):
            await post(client, receiver)

        assert client.stats().open_count == 0
    assert [request.connection for request in receiver.requests] == [1, 2, 3]


async def test_idle_connections_per_origin_are_limited() -> None:
    answer = asyncio.Event()
    async with (
        receiving(answers=[Reply(after=answer)]) as receiver,
        Client(LOOPBACK, limits=Limits(idle_per_origin_max=3)) as client,
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
