"""`penstock serve`: several processes of the API on one database."""

import asyncio
import resource
import socket
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.postgres.pool import connect as connect_to_database
from tests.e2e.command import Command, penstock
from tests.fault.waiting import POLL_SECONDS, pause
from tests.ports import free_port
from tests.web.scene import flood

SERVE = ("serve", "--port", "0")
KEY = "a-key-from-the-vault"


@contextmanager
def serving(dsn: str, folder: Path, **environment: str) -> Generator[tuple[Command, str]]:
    """Run `penstock serve`, and give it and its URL."""
    known = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_ADMIN_KEY": KEY, **environment}
    with penstock(*SERVE, folder=folder, environment=known) as serve:
        yield serve, serve.wait_for(r"penstock serves (\S+)").group(1)


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def metric(url: str, name: str) -> float:
    """Return the value of a metric without labels."""
    page = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {KEY}"})
    (line,) = [line for line in page.text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def test_two_servers_share_one_database(dsn: str, folder: Path) -> None:
    with serving(dsn, folder) as (one, first_url), serving(dsn, folder) as (two, second_url):
        answers = [
            httpx.get(f"{url}/lanes", headers={"Authorization": f"Bearer {KEY}"})
            for url in (first_url, second_url)
        ]

        assert [answer.status_code for answer in answers] == [200, 200]
        assert [each.stop() for each in (one, two)] == [0, 0]


WAITS = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'penstock.api_key'::regclass
"""


async def test_health_answers_once_the_given_key_works(dsn: str, folder: Path) -> None:
    """A script waits for /health, and its first call with the key must not get 401."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_ADMIN_KEY": KEY}
    locking = await connect_to_database(dsn)
    holding = locking.transaction()
    await holding.start()
    await locking.execute("LOCK TABLE penstock.api_key")

    with penstock("serve", "--port", str(port), folder=folder, environment=environment) as serve:
        async with asyncio.timeout(60):
            while not await locking.fetchval(WAITS):
                assert serve.process.poll() is None
                await pause(POLL_SECONDS)
        with connect(url) as early:
            early.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            early.settimeout(1)
            with pytest.raises(TimeoutError):
                early.recv(1)
            await holding.rollback()
            early.settimeout(60)
            health = early.recv(65_536)
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as client:
            answer = await client.get(f"{url}/lanes")

    await locking.close()
    assert health.startswith(b"HTTP/1.1 200 ")
    assert answer.status_code == 200


def test_a_connection_over_the_maximum_is_answered_with_503(dsn: str, folder: Path) -> None:
    """Connections of a flood must not take the descriptors that the database needs."""
    with (
        serving(dsn, folder, PENSTOCK_API_CONNECTIONS_MAX="3") as (serve, url),
        ExitStack() as held,
    ):
        for _ in range(3):
            connection = held.enter_context(connect(url))
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        with connect(url) as late:
            said = late.makefile("rb").read()
        held.close()

        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: " in said
        assert b"\r\nconnection: close\r\n" in said
        assert b"urn:penstock:problem:too-many-connections" in said
        serve.wait_for(r"connections\.refused +.*connection_count=3")
        assert metric(url, "http_connections_refused_total") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc and no prlimit")
def test_running_out_of_descriptors_is_logged_and_counted(dsn: str, folder: Path) -> None:
    """Connections were closed without a line: nobody could see why the API did not answer."""
    with serving(dsn, folder, PENSTOCK_API_CONNECTIONS_MAX="1000") as (serve, url):
        pid = serve.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        numbers = [int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(numbers) + 1, before[1]))
        with ExitStack() as held:
            for _ in range(max(numbers) + 2 - len(numbers)):
                held.enter_context(connect(url))
            serve.wait_for(r"server\.accept_failed .*reason=EMFILE")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

        assert metric(url, "http_accept_failures_total") >= 1


async def test_endless_headers_and_bodies_are_refused_on_the_loop_of_production(
    dsn: str, folder: Path
) -> None:
    """Other tests serve on asyncio's own loop; uvloop reads and writes in another order."""
    header = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "
    body = b"POST /items HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    with serving(dsn, folder) as (_, url):
        answers = [await flood(url, start, b"x" * 65_536) for start in (header, body)]

    (refused, header_bytes), (unauthenticated, body_bytes) = answers
    assert refused.startswith(b"HTTP/1.1 431 ")
    assert unauthenticated.startswith(b"HTTP/1.1 401 ")
    assert max(header_bytes, body_bytes) < 32 * 1024 * 1024
