"""What a client may send before it is a request: bounded as it arrives, and refused in turn."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from structlog.testing import capture_logs
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from penstock import Penstock
from penstock.kernel.api_keys import create_key
from tests.web.scene import LAST, LIVE, flood, say, served

HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
MEGABYTE = 1024 * 1024


@pytest.fixture
async def url(penstock: Penstock) -> AsyncGenerator[str]:
    """The API on a free port."""
    async with served(penstock, asyncio.Event()) as url:
        yield url


def problem(said: bytes, status: int, code: str) -> dict[str, Any]:
    """Return the problem that ends a connection, having checked what each of them has."""
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    told: dict[str, Any] = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/problem+json" in lines
    assert b"connection: close" in lines
    assert b"x-content-type-options: nosniff" in lines
    assert b"x-request-id: %b" % told["request_id"].encode() in lines
    assert told["type"] == f"urn:penstock:problem:{code}"
    return told


async def test_a_header_that_never_ends_is_refused_as_it_arrives(url: str) -> None:
    """Joining its parts costs quadratic time: 300 MB of one header stopped the API for minutes."""
    said, sent_bytes = await flood(url, HEAD + b"X-Long: ", b"x" * 65_536)

    problem(said, 431, "headers-too-large")
    assert sent_bytes < 32 * MEGABYTE, "what the system buffers, not what the client wants to send"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        pytest.param(HEAD, b"X-More: 1\r\n" * 10_000, id="headers without end"),
        pytest.param(HEAD + b"x", b"x" * 65_536, id="a name without end"),
        pytest.param(b"", b"\r\n" * 10_000, id="empty lines"),
    ],
)
async def test_a_head_that_never_ends_is_refused(url: str, start: bytes, more: bytes) -> None:
    said, sent_bytes = await flood(url, start, more)

    problem(said, 431, "headers-too-large")
    assert sent_bytes < 32 * MEGABYTE


async def test_a_url_that_never_ends_is_refused(url: str) -> None:
    said, sent_bytes = await flood(url, b"GET /", b"x" * 65_536)

    problem(said, 414, "url-too-long")
    assert sent_bytes < 32 * MEGABYTE


@pytest.mark.parametrize("count", [98, 99])
async def test_a_hundred_headers_are_accepted_and_more_are_not(url: str, count: int) -> None:
    said = await say(url, HEAD + b"Connection: close\r\n" + b"X-More: 1\r\n" * count + b"\r\n")

    if count == 98:
        assert said.startswith(b"HTTP/1.1 200 ")
    else:
        problem(said, 431, "headers-too-large")


async def test_a_head_below_the_limit_is_accepted_in_any_pieces(url: str) -> None:
    head = HEAD + b"Connection: close\r\nX-Long: " + b"x" * 63_000 + b"\r\n\r\n"

    whole = await say(url, head)
    pieces = await say(url, *(head[at : at + 997] for at in range(0, len(head), 997)))

    assert whole.startswith(b"HTTP/1.1 200 ")
    assert pieces.startswith(b"HTTP/1.1 200 ")


async def test_a_header_over_the_limit_is_refused_in_any_pieces(url: str) -> None:
    """The limit was 64 KiB without what came first, up to 80 KiB in all."""
    head = HEAD + b"Connection: close\r\nX-Long: " + b"x" * 65_536 + b"\r\n\r\n"

    whole = await say(url, head)
    pieces = await say(url, *(head[at : at + 997] for at in range(0, len(head), 997)))

    problem(whole, 431, "headers-too-large")
    problem(pieces, 431, "headers-too-large")


async def test_a_url_below_the_limit_is_accepted(url: str) -> None:
    said = await say(
        url, b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % (b"x" * 16_000)
    )

    assert said.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("start", "more"),
    [
        pytest.param(b"0\r\nX-Long: ", b"x" * 65_536, id="a trailer without end"),
        pytest.param(b"0\r\n", b"X-More: 1\r\n" * 10_000, id="trailers without end"),
        pytest.param(b"1;name=", b"x" * 65_536, id="a chunk extension without end"),
    ],
)
async def test_what_surrounds_the_chunks_of_a_body_is_bounded_too(
    url: str, start: bytes, more: bytes
) -> None:
    """Without a key, too: the rest of a body is read after a 401, which may come first."""
    said, sent_bytes = await flood(url, CHUNKED + start, more)

    assert said.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 431 "))
    assert sent_bytes < 32 * MEGABYTE


async def test_what_is_not_http_is_answered_with_a_problem(url: str) -> None:
    problem(await say(url, b"\x16\x03\x01 hello\r\n\r\n"), 400, "bad-request")


async def test_a_refusal_waits_for_the_responses_to_earlier_requests(url: str) -> None:
    """Otherwise the client takes it for the response to its first request."""
    said = await say(url, LIVE % 1, LIVE % 2, HEAD + b"X-More: 1\r\n" * 200)

    first, second, last = said.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ")
    assert second.startswith(b"200 ")
    problem(b"HTTP/1.1 " + last, 431, "headers-too-large")


@pytest.mark.parametrize(
    "earlier", [pytest.param(b"", id="alone"), pytest.param(LIVE % 1, id="in a pipeline")]
)
async def test_a_body_that_cannot_be_parsed_is_refused_in_place_of_its_request(
    url: str, earlier: bytes
) -> None:
    said = await say(url, earlier + CHUNKED + b"no length\r\n")

    assert said.count(b"HTTP/1.1 ") == 1 + bool(earlier)
    problem(said[said.rindex(b"HTTP/1.1 ") :], 400, "bad-request")


async def test_a_body_behind_a_refused_key_is_not_read_without_end(url: str) -> None:
    """A client without a key must not keep the API busy with a body that nobody reads."""
    head = b"POST /items HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"

    said, sent_bytes = await flood(url, head, b"x" * 65_536)

    assert said.startswith(b"HTTP/1.1 401 ")
    assert sent_bytes < 32 * MEGABYTE


async def test_a_small_body_behind_a_refused_key_keeps_the_connection(url: str) -> None:
    head = b"POST /items HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"

    said = await say(url, head, b"x" * 100_000, LAST)

    assert said.startswith(b"HTTP/1.1 401 ")
    assert said.count(b"HTTP/1.1 200 ") == 1


async def test_a_pipeline_is_read_no_faster_than_it_is_answered(url: str) -> None:
    """Each response let in another 256 kB of requests: their number grew without a bound."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"x" * 200) * 8_000)

    answered = 0
    while answered < 2_000 and (said := await reader.read(65_536)):
        answered += said.count(b"HTTP/1.1 200 ")
    # By type: isinstance asks objects for their class, and lazy ones of Django then load settings.
    waiting = sum(type(each) is RequestResponseCycle for each in gc.get_objects())
    writer.close()

    assert answered >= 2_000
    assert waiting < 2_000, "256 kB are a thousand of these requests"


async def test_a_refusal_is_logged_and_counted(penstock: Penstock) -> None:
    with capture_logs() as lines:
        async with served(penstock, asyncio.Event()) as url:
            await say(url, HEAD + b"X-More: 1\r\n" * 200)

    (line,) = [line for line in lines if line["event"] == "request.refused"]
    assert (line["status"], line["code"]) == (431, "headers-too-large")
    counted = penstock.meter.counters["http_requests_refused_total", (("code", line["code"]),)]
    assert counted == 1


async def test_the_trailers_of_a_chunked_request_are_not_headers(penstock: Penstock) -> None:
    """A proxy that removes `Authorization` from the head lets the trailer pass."""
    async with penstock.pool.acquire() as db:
        _, token = await create_key(db, "producer", ["produce"], who="test")
    body = b'{"lane": "work", "payload": 1}'
    request = (
        b"POST /items HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n%b\r\n"
        b"%x\r\n%b\r\n0\r\n%b\r\n"
    )
    key = b"Authorization: Bearer %b\r\n" % token.encode()

    async with served(penstock, asyncio.Event()) as url:
        stranger = await say(url, request % (b"", len(body), body, key))
        known = await say(url, request % (key, len(body), body, b"Idempotency-Key: k\r\n"))

    assert stranger.startswith(b"HTTP/1.1 401 ")
    assert known.startswith(b"HTTP/1.1 202 ")
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.idempotency") == 0


@pytest.mark.parametrize(
    "hosts", [pytest.param(b"", id="none"), pytest.param(b"Host: a\r\nHost: a\r\n", id="two")]
)
async def test_a_request_has_exactly_one_host(url: str, hosts: bytes) -> None:
    """A proxy and the server behind it may choose different ones of two."""
    said = await say(url, b"GET /health/live HTTP/1.1\r\n%b\r\n" % hosts)

    assert "Host" in problem(said, 400, "bad-request")["detail"]


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"identity", b"chunked, chunked"])
async def test_a_transfer_coding_other_than_chunked_is_refused(url: str, coding: bytes) -> None:
    """The body would be taken for what its coding holds."""
    start = CHUNKED.replace(b"chunked", coding)

    said = await say(url, start + b"0\r\n\r\n")

    problem(said, 400, "bad-request")


async def test_a_request_has_at_most_one_key(url: str) -> None:
    """A proxy and the server behind it may choose different ones of two."""
    key = b"Authorization: Bearer pk_one\r\n"

    said = await say(url, HEAD + key + key + b"\r\n")

    assert "Authorization" in problem(said, 400, "bad-request")["detail"]


@pytest.mark.parametrize("path", [b"/items", b"/api/v1/slots/batch"])
async def test_a_body_with_too_great_a_length_is_refused_before_it_arrives(
    penstock: Penstock, path: bytes
) -> None:
    """The caller waited for 30 seconds, and was told that it was too slow."""
    async with penstock.pool.acquire() as db:
        _, token = await create_key(db, "one", ["admin"], who="test")
    media_type = b"application/json" if path == b"/items" else b"application/x-ndjson"
    head = (
        b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: %b\r\nContent-Length: 99999999999\r\n\r\n"
    )

    async with served(penstock, asyncio.Event()) as url:
        said = await say(url, head % (path, token.encode(), media_type))

    problem(said, 413, "body-too-large")


async def test_a_request_of_http_1_0_needs_no_host(url: str) -> None:
    said = await say(url, b"GET /health/live HTTP/1.0\r\n\r\n")

    assert said.startswith(b"HTTP/1.1 200 ")
