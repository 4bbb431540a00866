"""The real server on a real port: it reports its URL, serves, and shuts down cleanly."""

import asyncio
import gc
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from httpx import AsyncClient, ConnectError
from structlog.testing import capture_logs
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from penstock import Penstock
from penstock.api import create_app
from penstock.base.errors import BadSetting
from penstock.kernel.api_keys import create_key
from penstock.web import serve
from tests.web.scene import LAST, LIVE, say, served


@asynccontextmanager
async def collector_off() -> AsyncGenerator[None]:
    """Collect garbage once, and none while the body runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_the_real_server_reports_its_url_and_serves_it(penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        _, token = await create_key(db, "admin", ["admin"], who="test")
    headers = {"Authorization": f"Bearer {token}"}

    async with (
        served(penstock, asyncio.Event()) as url,
        AsyncClient(base_url=url, headers=headers) as client,
    ):
        health = await client.get("/health")
        accepted = await client.post("/items", json={"lane": "work", "payload": {"a": 1}})
        shown = await client.get(f"/items/{accepted.json()['id']}")

    assert url.startswith("http://127.0.0.1:")
    assert not url.endswith(":0")
    assert health.json()["ready"] is True
    assert accepted.status_code == 202
    assert shown.json()["payload"] == {"a": 1}
    assert "server" not in shown.headers


async def test_an_answered_request_leaves_no_garbage_for_the_collector(penstock: Penstock) -> None:
    async with (
        served(penstock, asyncio.Event()) as url,
        AsyncClient(base_url=url) as client,
        collector_off(),
    ):
        for _ in range(10):
            await client.get("/health")
        # Not isinstance: it would make a lazy object of another library begin its work.
        left = sum(type(each) is RequestResponseCycle for each in gc.get_objects())

    assert left <= 1, "only a connection keeps a cycle, its last one"


async def test_the_real_server_cuts_off_a_body_over_the_limit(penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        _, token = await create_key(db, "producer", ["produce"], who="test")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async with (
        served(penstock, asyncio.Event()) as url,
        AsyncClient(base_url=url, headers=headers) as client,
    ):
        response = await client.post("/items", content=b" " * 2_000_000)

    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"


async def test_stopping_closes_the_port_and_idle_connections(penstock: Penstock) -> None:
    """A client that keeps its connection open must not delay the shutdown."""
    stop = asyncio.Event()

    with capture_logs() as lines:
        async with AsyncClient() as client, served(penstock, stop) as url:
            await client.get(f"{url}/health/live")
            stop.set()

        async with AsyncClient() as late:
            with pytest.raises(ConnectError):
                await late.get(f"{url}/health/live")

    events = [line["event"] for line in lines if line["log_level"] == "info"]
    assert events == ["server.started", "server.stopped"]


async def test_a_failure_of_the_caller_stops_the_server(penstock: Penstock) -> None:
    """The port must be free for the next start."""
    urls: list[str] = []

    async def fail() -> None:
        async with served(penstock, asyncio.Event()) as url:
            urls.append(url)
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as failed:
        await fail()

    assert failed.group_contains(ZeroDivisionError)
    async with AsyncClient() as client:
        with pytest.raises(ConnectError):
            await client.get(f"{urls[0]}/health/live")


async def test_pipelined_requests_are_answered_in_order(
    penstock: Penstock,
) -> None:
    """Also for a client that sends a thousand before it reads any response."""
    async with served(penstock, asyncio.Event()) as url:
        said = await say(url, *(LIVE % number for number in range(1000)), LAST)

    ids = [int(number) for number in re.findall(rb"x-request-id: (\d{1,4})\r\n", said)]
    assert ids == list(range(1000))
    assert said.count(b"HTTP/1.1 200 OK\r\n") == 1001


async def test_connection_close_closes_the_connection(penstock: Penstock) -> None:
    async with served(penstock, asyncio.Event()) as url:
        said = await say(url, LAST)
        old = await say(url, b"GET /health/live HTTP/1.0\r\n\r\n")

    for answer in (said, old):
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert b"connection: close" in lines
        assert b"content-length: %d" % len(body) in lines
        assert any(line.startswith(b"date: ") for line in lines)


async def test_a_head_request_is_answered_without_a_body(penstock: Penstock) -> None:
    request = LAST.replace(b"GET", b"HEAD")
    async with served(penstock, asyncio.Event()) as url:
        said = await say(url, request)

    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-length: " in head
    assert body == b""


async def test_a_port_in_use_is_an_error_that_names_the_setting(penstock: Penstock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(BadSetting, match=f"PENSTOCK_PORT.*{port}"):
            await serve(
                create_app(penstock),
                host="127.0.0.1",
                port=port,
                stop=asyncio.Event(),
                on_listening=lambda _: None,
            )


async def test_an_invalid_host_is_an_error_that_names_the_setting(penstock: Penstock) -> None:
    with pytest.raises(BadSetting, match="PENSTOCK_HOST"):
        await serve(
            create_app(penstock),
            host="no such host",
            port=0,
            stop=asyncio.Event(),
            on_listening=lambda _: None,
        )


async def test_a_response_to_a_bug_says_that_the_connection_closes(penstock: Penstock) -> None:
    """The server closes it: a client that sends its next request there would lose it."""
    await penstock.pool.execute("ALTER TABLE penstock.api_key RENAME TO other")

    async with served(penstock, asyncio.Event()) as url:
        said = await say(
            url, b"GET /lanes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\n\r\n"
        )

    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"\r\nconnection: close\r\n" in said.lower()
