"""Requests to a real server on loopback: responses, failures, deadlines and cancellation."""

import asyncio

import pytest

from penstock.base.aio import spawn
from penstock.base.clock import boot_seconds
from penstock.base.errors import CallFailed, InvalidInput
from penstock.integrations.http_client import (
    Client,
    Egress,
    PoolLimits,
    parse_url,
    prepare_route,
)
from tests.integrations.http_client.scene import (
    LOOPBACK,
    fail,
    knowing,
    next_iteration,
    post,
    route_to,
)
from tests.receiver import (
    PATIENCE,
    Close,
    Drip,
    Early,
    Hang,
    Raw,
    Received,
    Reply,
    receiving,
)

BODY = b'{"type":"invoice.paid"}' * 45  # About the kilobyte that an event has.
SHORT = 0.15  # Seconds of a deadline that is meant to be missed.


async def test_a_request_arrives_as_it_was_given() -> None:
    async with receiving(answers=[Reply(201, b"thanks")]) as receiver, Client(LOOPBACK) as client:
        route = prepare_route(
            parse_url(f"{receiver.url}?tenant=7"), [("Content-Type", "application/json")]
        )

        response = await client.post(route, [("webhook-id", "msg_1")], BODY, timeout=PATIENCE)

        (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook?tenant=7")
    assert request.body == BODY
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "webhook-id": "msg_1",
        "content-length": str(len(BODY)),
    }
    assert (response.status, response.body, response.is_truncated) == (201, b"thanks", False)
    assert 0 < response.duration_seconds < PATIENCE


@pytest.mark.parametrize("status", [200, 202, 204, 304, 400, 404, 410, 429, 500, 503, 599])
async def test_every_final_status_is_returned(status: int) -> None:
    """What a status means is up to the caller."""
    answer = Reply(status, headers={"Retry-After": "120"})
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        response = await post(client, receiver)

    assert response.status == status
    assert response.header("retry-after") == "120"
    assert response.header("content-type") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """It could lead anywhere, and the body is signed for this receiver only."""
    async with receiving() as elsewhere:
        answer = Reply(status, headers={"Location": elsewhere.url})
        async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
            response = await post(client, receiver)

    assert response.status == status
    assert len(receiver.requests) == 1
    assert elsewhere.opened_count == 0


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, b"x" * 300, is_chunked=True),
        Reply(200, b"x" * 300, is_last=True),
        Reply(200, b"x" * 300, informational=(100, 102, 103)),
        Raw([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 150, b"x" * 150]),
        Raw([b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 300]),
        Raw([b"HTTP/1.0 200 OK\r\nContent-Length: 300\r\n\r\n" + b"x" * 300]),
        Drip(b"x" * 300, pause_seconds=0),
    ],
    ids=["chunked", "last", "informational", "no length", "1.0", "1.0 length", "drip"],
)
async def test_a_body_may_have_any_framing_of_http_1(answer: Reply | Raw | Drip) -> None:
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        first = await post(client, receiver)
        second = await post(client, receiver)

    assert (first.status, first.body) == (200, b"x" * 300)
    assert (second.status, second.body) == (200, b"x" * 300)
    assert len(receiver.requests) == 2


async def test_a_large_body_is_truncated_and_its_connection_closed() -> None:
    """Reading the rest would defeat the limit."""
    answers = [Reply(200, b"a" * 10_000_000), Reply(200, b"b")]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        response = await post(client, receiver)
        again = await post(client, receiver)

        assert client.stats().idle_count == 1
    assert response.body == b"a" * 65_536
    assert response.is_truncated
    assert (again.body, again.is_truncated) == (b"b", False)
    assert receiver.opened_count == 2


async def test_a_body_of_exactly_the_limit_is_complete() -> None:
    async with (
        receiving(answers=[Reply(200, b"a" * 65_536)]) as receiver,
        Client(LOOPBACK) as client,
    ):
        response = await post(client, receiver)

    assert len(response.body) == 65_536
    assert not response.is_truncated


@pytest.mark.parametrize("is_last", [True, False], ids=["closing", "keeping"])
async def test_a_response_before_the_request_is_fully_sent_is_returned(is_last: bool) -> None:
    """A server that refuses a large body does not read it first. The connection cannot be reused:
    the rest of the body would come before the next request.
    """
    answers = [Early(413, is_last=is_last)]
    async with receiving(answers=answers) as receiver, Client(LOOPBACK) as client:
        response = await post(client, receiver, b"x" * 20_000_000)

        assert client.stats().open_count == 0
    assert response.status == 413


async def test_a_large_request_arrives_complete() -> None:
    body = bytes(range(256)) * 8_192
    async with receiving() as receiver, Client(LOOPBACK) as client:
        await post(client, receiver, body)

    assert receiver.requests[0].body == body


async def test_concurrent_requests_get_their_own_responses() -> None:
    """A mixed-up response would be recorded for another event."""

    def echo(request: Received) -> Reply:
        return Reply(200, request.body)

    async with receiving(answers=echo) as receiver, Client(LOOPBACK) as client:
        route = route_to(receiver)

        async def deliver(number: int) -> None:
            for step in range(10):
                body = b"%d/%d" % (number, step)
                response = await client.post(route, (), body, timeout=PATIENCE)
                assert response.body == body

        async with asyncio.TaskGroup() as group:
            for number in range(50):
                spawn(group, deliver(number))

    assert len(receiver.requests) == 500
    assert receiver.opened_count <= 50


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Hang(), "while waiting for a response"),
        (Raw([b"HTTP/1.1 200 OK\r\nContent-"], is_last=False), "before the response was complete"),
        (
            Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"], is_last=False),
            "before the response was complete",
        ),
        (Raw([b"HTTP/1.1 200 OK\r\n\r\nab"], is_last=False), "before the response was complete"),
        (
            Raw([b"HTTP/1.1 100 Continue\r\n\r\n"], is_last=False),
            "before the response was complete",
        ),
        (Drip(b"x" * 10_000), "before the response was complete"),
    ],
    ids=["silence", "head", "body", "no length", "continue", "drip"],
)
async def test_the_deadline_covers_the_last_byte(answer: Hang | Raw | Drip, reason: str) -> None:
    """A server that sends a byte now and then must not block a request for ever."""
    loop = asyncio.get_running_loop()
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        began_at = loop.time()
        failed = await fail(client, receiver, "timeout", timeout=SHORT)
        took = loop.time() - began_at

        await receiver.until(lambda: receiver.closed_count == 1)
        assert client.stats().open_count == 0
    assert reason in failed.reason
    assert SHORT * 0.9 <= took < 20 * SHORT
    assert len(receiver.requests) == 1


async def test_the_deadline_covers_the_wait_for_a_connection() -> None:
    only_one = PoolLimits(connections_max=1)
    async with (
        receiving(answers=[Hang()]) as receiver,
        Client(LOOPBACK, limits=only_one) as client,
        asyncio.TaskGroup() as group,
    ):
        first = spawn(group, fail(client, receiver, "closed"))
        await receiver.wait_for(1)

        failed = await fail(client, receiver, "timeout", timeout=SHORT)

        assert "waiting for a free connection" in failed.reason
        assert not first.done()
        await client.close()


async def test_a_waiting_request_runs_when_another_has_ended() -> None:
    """The limit on connections makes requests wait; it must not lose one."""
    answer = asyncio.Event()
    async with (
        receiving(answers=[Reply(after=answer)]) as receiver,
        Client(LOOPBACK, limits=PoolLimits(connections_max=2)) as client,
        asyncio.TaskGroup() as group,
    ):
        tasks = [spawn(group, post(client, receiver)) for _ in range(10)]
        await receiver.wait_for(2)
        assert client.stats().open_count == 2

        answer.set()
        await asyncio.wait(tasks)

        assert client.stats().open_count == 2
    assert [task.result().status for task in tasks] == [200] * 10
    assert receiver.opened_count == 2


async def test_an_idle_connection_is_dropped_when_another_origin_needs_one() -> None:
    only_two = PoolLimits(connections_max=2)
    async with (
        receiving() as first,
        receiving() as second,
        receiving() as third,
        Client(LOOPBACK, limits=only_two) as client,
    ):
        for receiver in (first, second, third):
            await post(client, receiver)
            assert client.stats().open_count <= 2

        await first.until(lambda: first.closed_count == 1)
        assert (second.closed_count, third.closed_count) == (0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        Close(),
        Close(is_reset=True),
        Raw([b"HTTP/1.1 200 OK\r\nContent-Le"]),
        Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]),
        Raw([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"]),
        Raw([b"HTTP/1.1 100 Continue\r\n\r\n"]),
    ],
    ids=["nothing", "reset", "head", "body", "chunk", "continue"],
)
async def test_an_end_before_a_complete_response_is_a_failure(answer: Close | Raw) -> None:
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        await fail(client, receiver, "closed")

        assert client.stats().open_count == 0
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"220 mail.example ESMTP\r\n",
        b"\x00\x01\x02\x03",
        b"<html>\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Fill: %b\r\n" % (b"x" * 1_000) * 40 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Fill: " + b"x" * 100_000,
    ],
    ids=["smtp", "binary", "html", "upgrade", "headers", "header"],
)
async def test_bytes_that_are_not_http_are_malformed(garbage: bytes) -> None:
    answer = Raw([garbage], is_last=False)
    async with receiving(answers=[answer]) as receiver, Client(LOOPBACK) as client:
        await fail(client, receiver, "malformed")

        await receiver.until(lambda: receiver.closed_count == 1)
        assert client.stats().open_count == 0


async def test_a_server_that_greets_first_is_not_http() -> None:
    """Mail servers do. The greeting must not be taken for the response."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(LOOPBACK) as client:
        with pytest.raises(CallFailed) as caught:
            await post(client, f"http://127.0.0.1:{port}/")

        assert caught.value.kind in ("closed", "malformed")


async def test_a_closed_port_fails_as_connect() -> None:
    async with receiving() as receiver:
        pass

    async with Client(LOOPBACK) as client:
        failed = await fail(client, receiver, "connect")

        assert client.stats().open_count == 0
    assert "refused" in failed.reason
    assert "127.0.0.1" not in failed.reason


async def test_a_name_without_an_address_fails_as_bad_name() -> None:
    async with Client(LOOPBACK, lookup=knowing({"empty.test": []})) as client:
        unknown = await fail(client, "http://nobody.test/", "bad_name")
        empty = await fail(client, "http://empty.test/", "bad_name")

    assert "unknown in this test" in unknown.reason
    assert "no address" in empty.reason


async def test_a_failure_prints_its_kind_and_reason() -> None:
    assert str(CallFailed("tls", "handshake failed")) == "tls: handshake failed"


async def test_a_cancelled_request_closes_its_connection() -> None:
    """Its response is still to come, and the next request must not get it."""
    answer = asyncio.Event()
    answers = [Reply(200, b"first"), Reply(500, b"late", after=answer), Reply(200, b"next")]
    async with (
        receiving(answers=answers) as receiver,
        Client(LOOPBACK) as client,
        asyncio.TaskGroup() as group,
    ):
        await post(client, receiver)
        cancelled = spawn(group, post(client, receiver))
        await receiver.wait_for(2)

        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert client.stats().open_count == 0
        answer.set()
        response = await post(client, receiver)

    assert cancelled.cancelled()
    assert response.body == b"next"
    assert [request.connection for request in receiver.requests] == [1, 1, 2]


async def test_a_request_cancelled_as_its_response_arrives_keeps_the_connection() -> None:
    """The connection is back in the pool by then, and perhaps in use again."""
    async with receiving() as receiver, Client(LOOPBACK) as client, asyncio.TaskGroup() as group:
        await post(client, receiver)
        task = spawn(group, post(client, receiver))
        while client.stats().idle_count:
            await next_iteration()
        while not client.stats().idle_count:
            await next_iteration()
        # The response has arrived and the task has not resumed: it ends either way.
        task.cancel()
        await asyncio.wait([task])

        assert (await post(client, receiver)).status == 200
    assert receiver.opened_count == 1


@pytest.mark.parametrize("turns", range(12))
async def test_a_request_may_be_cancelled_at_any_moment(turns: int) -> None:
    """In the queue, in DNS, while connecting or reading: nothing is left behind."""
    lookup = knowing({"hook.test": ["127.0.0.1"]})
    async with receiving() as receiver, Client(LOOPBACK, lookup=lookup) as client:
        url = receiver.url_of("hook.test")
        async with asyncio.TaskGroup() as group:
            task = spawn(group, post(client, url))
            for _ in range(turns):
                await next_iteration()
            task.cancel()
            await asyncio.wait([task])

        stats = client.stats()
        assert stats.open_count == stats.idle_count
        responses = [await post(client, url) for _ in range(3)]
    assert [response.status for response in responses] == [200] * 3


async def test_a_timeout_of_the_caller_is_not_translated() -> None:
    async with receiving(answers=[Hang()]) as receiver, Client(LOOPBACK) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT):
                await post(client, receiver)

        assert client.stats().open_count == 0


@pytest.mark.parametrize("header", [("X-A", "1\r\nX-B: 2"), ("X-A\r\nX-B", "2"), ("Host", "x")])
async def test_an_injected_header_is_refused_before_anything_is_sent(
    header: tuple[str, str],
) -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        with pytest.raises(InvalidInput):
            await client.post(route_to(receiver), [header], BODY, timeout=PATIENCE)

    assert receiver.opened_count == 0


@pytest.mark.parametrize(
    ("url", "headers", "field"),
    [
        ("ftp://example.com/", [], "url"),
        ("http://example.com/", [("Host", "x")], "headers.Host"),
        ("http://example.com/", [("é" * 500, "x")], "headers." + "é" * 100),
    ],
)
async def test_a_route_with_a_bad_url_or_header_is_refused(
    url: str, headers: list[tuple[str, str]], field: str
) -> None:
    """The field names what the user has to correct."""
    async with Client(Egress(ports=frozenset({80}))) as client:
        with pytest.raises(InvalidInput) as refused:
            client.prepare(url, headers)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "http://10.0.0.1/", "http://example.com:81/"]
)
async def test_a_url_is_checked_before_it_is_stored(url: str) -> None:
    async with Client(Egress(ports=frozenset({80}))) as client:
        with pytest.raises(InvalidInput) as refused:
            client.check_url(url)

    assert refused.value.field == "url"


async def test_headers_are_checked_without_a_url() -> None:
    """A change of headers alone must be refused before it is stored."""
    async with Client(Egress()) as client:
        client.check_headers([("X-Tenant", "7")])
        with pytest.raises(InvalidInput, match=r"headers\.X-Tenant"):
            client.check_headers([("X-Tenant", "7\r\n")])


async def test_closing_fails_requests_in_progress_and_later_ones() -> None:
    async with (
        receiving(answers=[Hang()]) as receiver,
        Client(LOOPBACK) as client,
        asyncio.TaskGroup() as group,
    ):
        in_progress = spawn(group, fail(client, receiver, "closed"))
        await receiver.wait_for(1)

        await client.close()

        await in_progress
        await fail(client, receiver, "closed")
        assert client.stats().open_count == 0
        await receiver.until(lambda: receiver.closed_count == 1)


async def test_closing_twice_is_harmless() -> None:
    async with receiving() as receiver, Client(LOOPBACK) as client:
        await post(client, receiver)
        await client.close()
        await client.close()


async def test_closing_during_connect_leaves_no_connection() -> None:
    async with receiving(answers=[Hang()]) as receiver:
        async with asyncio.TaskGroup() as group:
            for turns in range(12):
                client = Client(LOOPBACK)
                spawn(group, fail(client, receiver, "closed"))
                for _ in range(turns):
                    await next_iteration()
                await client.close()
                assert client.stats().open_count == 0

        await receiver.until(lambda: receiver.opened_count == receiver.closed_count)


async def test_stats_count_connections() -> None:
    async with (
        receiving(answers=[Reply(is_last=True), 200]) as receiver,
        Client(LOOPBACK) as client,
    ):
        await post(client, receiver)
        await post(client, receiver)

        stats = client.stats()
    assert (stats.open_count, stats.idle_count) == (1, 1)
    assert stats.opened_total == 2


async def test_ipv6_works_like_ipv4() -> None:
    try:
        async with receiving(host="::1") as receiver, Client(LOOPBACK) as client:
            response = await post(client, receiver)
    except OSError:
        pytest.skip("this machine has no IPv6")

    assert response.status == 200
    assert receiver.requests[0].headers["host"] == f"[::1]:{receiver.port}"


async def test_a_request_is_not_written_after_its_last_instant() -> None:
    """The machine may be suspended while a connection is opened: the caller may no longer send."""
    not_after = boot_seconds() + 0.02

    def look_up_slowly(_host: str) -> list[str]:
        while boot_seconds() < not_after:
            pass
        return ["127.0.0.1"]

    async with receiving() as receiver, Client(LOOPBACK, lookup=look_up_slowly) as client:
        route = client.prepare(receiver.url_of("bank.test"))

        for _ in ("a new connection", "an idle one"):
            with pytest.raises(CallFailed) as failed:
                await client.post(route, (), b"late", timeout=PATIENCE, not_after=not_after)
            assert failed.value.kind == "expired"
            soon = boot_seconds() + PATIENCE
            await client.post(route, (), b"next", timeout=PATIENCE, not_after=soon)

        assert [each.body for each in receiver.requests] == [b"next", b"next"]
