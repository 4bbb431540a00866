"""GET on a real server: the same rules, limits and deadlines as POST, and the body comes back."""

import ssl

import pytest
import trustme

from penstock.base.errors import CallFailed, InvalidInput
from penstock.integrations.http_client import Client, Egress, PoolLimits
from tests.integrations.http_client.scene import LOOPBACK, get, knowing, route_to
from tests.receiver import PATIENCE, Drip, Hang, Raw, Reply, receiving

SHORT = 0.15  # Seconds of a deadline that is meant to be missed.


async def test_a_get_sends_no_body_and_returns_the_response() -> None:
    answer = Reply(200, b'{"status":"settled"}', headers={"Content-Type": "application/json"})
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        route = client.prepare(f"{receiver.url}?id=7", [("Accept", "application/json")])

        response = await client.get(route, [("X-Request-Id", "r1")], timeout=PATIENCE)

        (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("GET", "/hook?id=7", b"")
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "accept-encoding": "identity",
        "accept": "application/json",
        "x-request-id": "r1",
    }
    assert (response.status, response.body) == (200, b'{"status":"settled"}')
    assert response.header("content-type") == "application/json"


async def test_a_body_over_the_limit_is_truncated() -> None:
    limits = PoolLimits(body_bytes_max=1_000)
    answers = [Reply(200, b"a" * 1_000), Reply(200, b"a" * 1_001), Reply(200, b"b")]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK, limits=limits) as client:
        exact = await get(client, receiver)
        longer = await get(client, receiver)
        after = await get(client, receiver)

    assert (len(exact.body), exact.is_truncated) == (1_000, False)
    assert (len(longer.body), longer.is_truncated) == (1_000, True)
    assert (after.body, after.is_truncated) == (b"b", False)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """It could lead to an address that is not allowed."""
    async with receiving() as elsewhere:
        answer = Reply(status, headers={"Location": elsewhere.url})
        async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
            response = await get(client, receiver)

    assert (response.status, response.header("location")) == (status, elsewhere.url)
    assert elsewhere.opened_count == 0


@pytest.mark.parametrize(
    "answer",
    [
        Hang(),
        Drip(b"x" * 10_000),
        Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"], is_last=False),
    ],
    ids=["silence", "drip", "half"],
)
async def test_the_deadline_covers_the_last_byte(answer: Hang | Drip | Raw) -> None:
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        with pytest.raises(CallFailed) as failed:
            await get(client, receiver, timeout=SHORT)

        await receiver.until(lambda: receiver.closed_count == 1)
        assert client.stats().open_count == 0
    assert failed.value.kind == "timeout"


@pytest.mark.parametrize("host", ["127.0.0.1", "internal.test"])
async def test_an_internal_address_is_refused(host: str) -> None:
    lookup = knowing({"internal.test": ["127.0.0.1"]})
    async with receiving() as receiver, Client(Egress(), lookup=lookup) as client:
        with pytest.raises(CallFailed) as failed:
            await get(client, receiver.url_of(host))

    assert failed.value.kind == "refused_address"
    assert receiver.opened_count == 0


async def test_an_injected_header_is_refused_before_anything_is_sent() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        with pytest.raises(InvalidInput):
            await client.get(route_to(receiver), [("X-A", "1\r\nX-B: 2")], timeout=PATIENCE)

    assert receiver.opened_count == 0


async def test_get_and_post_share_route_and_connection() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        route = route_to(receiver)
        await client.post(route, (), b"{}", timeout=PATIENCE)
        await client.get(route, timeout=PATIENCE)
        await client.post(route, (), b"{}", timeout=PATIENCE)

    assert [request.method for request in receiver.requests] == ["POST", "GET", "POST"]
    assert [request.connection for request in receiver.requests] == [1, 1, 1]


async def test_a_get_over_tls_verifies_the_name() -> None:
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("rail.test").configure_cert(served)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    lookup = knowing({"rail.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    async with (
        receiving(answers=[Reply(200, b"ok")], tls=served) as receiver,
        Client(LOOPBACK, tls=trusted, lookup=lookup) as client,
    ):
        response = await get(client, receiver.url_of("rail.test"))
        with pytest.raises(CallFailed) as failed:
            await get(client, receiver.url_of("other.test"))

    assert response.body == b"ok"
    assert failed.value.kind == "tls"
