"""TLS: the certificate must be valid for the host name, whatever its address."""

import asyncio
import ssl

import pytest
import trustme

from penstock.integrations.http_client import Client
from tests.integrations.http_client.scene import LOOPBACK, fail, knowing, post
from tests.receiver import Close, Hang, Reply, receiving

LOOKUP = knowing({"hook.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def served(authority: trustme.CA) -> ssl.SSLContext:
    """Return the context of a server for hook.test."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hook.test", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusted(authority: trustme.CA) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_certificate_of_the_host_is_accepted_and_the_name_is_sent(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Servers choose the certificate by SNI, though the client connects to an address."""
    async with (
        receiving(answers=[Reply(200, b"x" * 40_000)], tls=served) as receiver,
        Client(LOOPBACK, tls=trusted, lookup=LOOKUP) as client,
    ):
        for _ in range(3):
            response = await post(client, receiver.url_of("hook.test"), b"y" * 100_000)
            assert response.body == b"x" * 40_000

    assert receiver.names == ["hook.test"]
    assert receiver.opened_count == 1
    assert receiver.requests[2].body == b"y" * 100_000


async def test_a_certificate_of_another_host_is_refused(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    async with (
        receiving(tls=served) as receiver,
        Client(LOOPBACK, tls=trusted, lookup=LOOKUP) as client,
    ):
        failed = await fail(client, receiver.url_of("other.test"), "tls")

        assert client.stats().open_count == 0
    assert "other.test" in failed.reason
    assert receiver.requests == []


async def test_a_certificate_of_an_unknown_authority_is_refused(served: ssl.SSLContext) -> None:
    async with (
        receiving(tls=served) as receiver,
        Client(LOOPBACK, lookup=LOOKUP) as client,
    ):
        failed = await fail(client, receiver.url_of("hook.test"), "tls")

    assert "certificate verification failed" in failed.reason
    assert receiver.requests == []


async def test_a_certificate_may_be_for_an_address(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    async with receiving(tls=served) as receiver, Client(LOOPBACK, tls=trusted) as client:
        response = await post(client, receiver)

    assert response.status == 200


async def test_a_server_without_tls_fails_as_tls(trusted: ssl.SSLContext) -> None:
    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(LOOPBACK, tls=trusted) as client:
        failed = await fail(client, f"https://127.0.0.1:{port}/", "tls")

        assert client.stats().open_count == 0
    assert "TLS handshake failed" in failed.reason


async def test_a_server_that_closes_during_the_handshake_fails_as_tls(
    trusted: ssl.SSLContext,
) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(LOOPBACK, tls=trusted) as client:
        await fail(client, f"https://127.0.0.1:{port}/", "tls")

        assert client.stats().open_count == 0


@pytest.mark.parametrize("greeting", [b"", b"220 mail.example ESMTP\r\n"], ids=["none", "smtp"])
async def test_a_server_that_closes_or_greets_before_the_handshake_fails_as_tls(
    greeting: bytes, trusted: ssl.SSLContext
) -> None:
    """The data may arrive before or after the handshake begins; the failure is the same."""

    def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(LOOPBACK, tls=trusted) as client:
        for _ in range(20):
            await fail(client, f"https://127.0.0.1:{port}/", "tls")

        assert client.stats().open_count == 0


async def test_the_deadline_covers_tls(trusted: ssl.SSLContext) -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        left.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(LOOPBACK, tls=trusted) as client:
        failed = await fail(client, f"https://127.0.0.1:{port}/", "timeout", timeout=0.1)

        assert client.stats().open_count == 0
        async with asyncio.timeout(5):
            await left.wait()
    assert "negotiating TLS" in failed.reason


@pytest.mark.parametrize("answer", [Hang(), Close()], ids=["hang", "close"])
async def test_failures_over_tls_are_the_same_as_without(
    answer: Hang | Close, served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    async with (
        receiving(answers=[200, 200, answer], tls=served) as receiver,
        Client(LOOPBACK, tls=trusted) as client,
    ):
        await post(client, receiver)
        await post(client, receiver)
        await fail(client, receiver, "timeout" if answer == Hang() else "closed", timeout=1.0)

        assert client.stats().open_count == 0
    assert len(receiver.requests) == 3
