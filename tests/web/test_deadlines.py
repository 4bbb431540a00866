"""A client that sends or reads nothing does not keep its connection."""

import asyncio
import re
from datetime import timedelta

import pytest
from httpx import AsyncClient, Limits

from penstock import Penstock
from penstock.web.protocol import Timeouts
from tests.web.scene import LIVE, say, served

SHORT = timedelta(milliseconds=10)
HEAD = b"POST /items HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"


def expired(penstock: Penstock, phase: str) -> float:
    """Return how many connections were closed while they waited for something."""
    return penstock.meter.counters.get(("http_connections_expired_total", (("phase", phase),)), 0)


async def test_a_silent_connection_is_closed(penstock: Penstock) -> None:
    """200 of 200 were open after 70 seconds."""
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(first_byte=SHORT)) as url:
        said = await asyncio.gather(*(say(url) for _ in range(20)))

    assert said == [b""] * 20
    assert expired(penstock, "first_byte") == 20


@pytest.mark.parametrize("part", [HEAD, HEAD[:7], b"\r\n"], ids=["headers", "method", "empty line"])
async def test_half_a_head_is_refused(penstock: Penstock, part: bytes) -> None:
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(head=SHORT)) as url:
        said = await say(url, part)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"urn:penstock:problem:head-too-slow" in said


async def test_half_a_head_after_a_request_is_refused(penstock: Penstock) -> None:
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(head=SHORT)) as url:
        said = await say(url, (LIVE % 1) + HEAD)

    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", b"408"]


async def test_a_body_that_stops_after_its_response_ends_the_connection(penstock: Penstock) -> None:
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(unread=SHORT)) as url:
        said = await say(url, HEAD + b"\r\n{")

    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"401"]
    assert expired(penstock, "unread") == 1


async def test_a_kept_connection_is_closed_when_it_is_idle(penstock: Penstock) -> None:
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(idle=SHORT)) as url:
        said = await say(url, LIVE % 1)

    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200"]


async def send_without_reading(url: str) -> None:
    """Send requests until the server ends the connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1)
    try:
        async with asyncio.timeout(60):
            while True:
                writer.write(b"".join(LIVE % number for number in range(1000)))
                await writer.drain()
    finally:
        writer.close()


async def test_a_client_that_does_not_read_is_dropped(penstock: Penstock) -> None:
    """Its handler waits for it, and so would the shutdown."""
    async with served(penstock, asyncio.Event(), timeouts=Timeouts(unsent=SHORT)) as url:
        with pytest.raises(ConnectionError):
            await send_without_reading(url)

    assert expired(penstock, "unsent") == 1


async def test_a_connection_with_requests_has_no_deadline(penstock: Penstock) -> None:
    """The head's time starts with its first byte, not with the connection."""
    timeouts = Timeouts(first_byte=SHORT, head=timedelta(seconds=30))
    async with (
        served(penstock, asyncio.Event(), timeouts=timeouts) as url,
        AsyncClient(base_url=url, limits=Limits(max_connections=1)) as client,
    ):
        answers = [await client.get("/health") for _ in range(100)]

    assert {answer.status_code for answer in answers} == {200}
    assert expired(penstock, "first_byte") == 0
