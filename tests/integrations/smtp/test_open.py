"""Opening: banner, EHLO, TLS by policy, and AUTH, each with its phase if it fails."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import trustme

from penstock.base.errors import InvalidInput
from penstock.integrations.smtp import Client, ClientLimits, SendFailed, TlsPolicy
from tests.integrations.smtp.scene import relay_of, send
from tests.ports import free_port
from tests.smtp_server import SmtpServer, Step, serving

AUTHORITY = trustme.CA()


def server_tls(name: str = "localhost") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(name).configure_cert(context)
    return context


@asynccontextmanager
async def trusting() -> AsyncGenerator[Client]:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    async with Client(ehlo_name="client.test", tls=context) as client:
        yield client


@pytest.mark.parametrize(
    ("policy", "is_tls", "starttls_count"),
    [("tls", True, 0), ("starttls", False, 1), ("opportunistic", False, 1), ("none", False, 0)],
)
async def test_a_policy_decides_how_the_connection_is_encrypted(
    policy: TlsPolicy, is_tls: bool, starttls_count: int
) -> None:
    async with trusting() as client, serving(SmtpServer(tls=server_tls()), is_tls=is_tls) as server:
        relay = relay_of(server, host="localhost", tls=policy)
        first = await send(client, server, relay=relay)
        second = await send(client, server, relay=relay)

    assert [sent.replies[0].code for sent in (first, second)] == [250, 250]
    assert server.steps["STARTTLS"] == starttls_count
    assert server.connections_total == 1


@pytest.mark.parametrize(("policy", "phase"), [("tls", "connect"), ("starttls", "starttls")])
async def test_a_certificate_for_another_name_is_refused(policy: TlsPolicy, phase: str) -> None:
    tls = server_tls("elsewhere.test")
    async with trusting() as client, serving(SmtpServer(tls=tls), is_tls=policy == "tls") as server:
        failed = await failure(client, server, tls=policy, host="localhost")

    assert (failed.phase, failed.kind) == (phase, "tls")
    assert server.steps["MAIL"] == 0


async def test_opportunistic_tls_takes_any_certificate_and_clear_text(client: Client) -> None:
    async with serving(SmtpServer(tls=server_tls("elsewhere.test"))) as server:
        await send(client, server, relay=relay_of(server, tls="opportunistic"))
    async with serving(SmtpServer()) as plain:
        await send(client, plain, relay=relay_of(plain, name="plain", tls="opportunistic"))

    assert server.steps["STARTTLS"] == 1
    assert len(plain.messages) == 1


@pytest.mark.parametrize("policy", ["starttls", "opportunistic"])
async def test_a_refused_starttls_never_falls_back_to_clear_text(policy: TlsPolicy) -> None:
    async with trusting() as client, serving(SmtpServer(tls=server_tls())) as server:
        server.on("STARTTLS", "454 4.7.0 TLS not available", times=9)
        failed = await failure(client, server, tls=policy, host="localhost")

    assert (failed.phase, failed.kind) == ("starttls", "refused")
    assert failed.reply is not None
    assert failed.reply.code == 454
    assert server.steps["MAIL"] == 0


async def test_starttls_that_is_not_offered_is_a_failure(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        failed = await failure(client, server, tls="starttls")

    assert (failed.phase, failed.kind) == ("starttls", "not_offered")


async def test_a_handshake_with_garbage_is_a_tls_failure(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        failed = await failure(client, server, tls="tls")

    assert (failed.phase, failed.kind) == ("connect", "tls")


async def test_an_account_is_used_after_tls() -> None:
    account = ("user", "word")
    async with (
        trusting() as client,
        serving(SmtpServer(tls=server_tls(), account=account)) as server,
    ):
        relay = relay_of(server, host="localhost", tls="starttls", username="user", password="word")
        await send(client, server, relay=relay)

    assert server.steps["AUTH"] == 1
    assert len(server.messages) == 1


async def test_a_wrong_password_is_a_refusal_at_auth(client: Client) -> None:
    async with serving(SmtpServer(account=("user", "word"))) as server:
        failed = await failure(client, server, username="user", password="wrong")

    assert (failed.phase, failed.kind) == ("auth", "refused")
    assert failed.reply is not None
    assert failed.reply.code == 535


async def test_auth_that_is_not_offered_is_a_failure(client: Client) -> None:
    async with serving(SmtpServer(account=("user", "word"), without={"AUTH"})) as server:
        failed = await failure(client, server, username="user", password="word")

    assert (failed.phase, failed.kind) == ("auth", "not_offered")


def test_a_password_is_never_sent_by_chance() -> None:
    """Whoever sits between could hide STARTTLS and read it."""
    with pytest.raises(InvalidInput) as caught:
        relay_of(SmtpServer(port=25), tls="opportunistic", username="user", password="word")

    assert caught.value.field == "tls"


async def test_a_refusing_banner_has_its_reply(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("BANNER", "554 5.3.2 no service")
        failed = await failure(client, server)

    assert (failed.phase, failed.kind) == ("banner", "refused")
    assert failed.reply is not None
    assert (failed.reply.code, failed.reply.enhanced) == (554, "5.3.2")


async def test_a_banner_that_is_not_smtp_is_malformed(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("BANNER", "SSH-2.0-OpenSSH")
        failed = await failure(client, server)

    assert (failed.phase, failed.kind) == ("banner", "malformed")


async def test_a_connection_dropped_before_the_banner_is_closed(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("BANNER", drop=True)
        failed = await failure(client, server)

    assert (failed.phase, failed.kind) == ("banner", "closed")


@pytest.mark.parametrize(
    ("step", "phase"), [("BANNER", "connect"), ("EHLO", "ehlo"), ("MAIL", "mail"), ("RCPT", "rcpt")]
)
async def test_a_hanging_server_costs_no_more_than_the_timeout(
    client: Client, step: Step, phase: str
) -> None:
    async with serving(SmtpServer()) as server:
        server.on(step, hang=True)
        failed = await failure(client, server, timeout=0.1)
        await server.emptied()

    assert (failed.phase, failed.kind, failed.is_unknown) == (phase, "timeout", False)


async def test_a_slow_banner_has_a_time_limit_of_its_own() -> None:
    limits = ClientLimits(connect=timedelta(milliseconds=50))
    async with Client(limits=limits) as client, serving(SmtpServer()) as server:
        server.on("BANNER", hang=True)
        failed = await failure(client, server, timeout=30)

    assert (failed.phase, failed.kind) == ("banner", "timeout")


async def test_ehlo_that_is_not_known_is_followed_by_helo(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("EHLO", "502 5.5.1 not implemented")
        await send(client, server)

    assert server.messages[0].options == ()


async def test_421_at_ehlo_is_a_refusal(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("EHLO", "421 4.7.0 too many connections", drop=True)
        failed = await failure(client, server)

    assert (failed.phase, failed.kind) == ("ehlo", "refused")
    assert failed.reply is not None
    assert failed.reply.enhanced == "4.7.0"


async def test_a_port_without_a_server_and_a_name_without_an_address(client: Client) -> None:
    server = SmtpServer(port=free_port())
    closed = await failure(client, server)
    unknown = await failure(client, server, name="other", host="relay.invalid")

    assert (closed.phase, closed.kind) == ("connect", "connect")
    assert (unknown.phase, unknown.kind) == ("connect", "bad_name")


async def test_a_cancelled_open_leaves_no_connection(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("BANNER", hang=True)
        opening = asyncio.ensure_future(send(client, server))
        await server.reached("BANNER")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

        await server.emptied()


async def failure(
    client: Client, server: SmtpServer, *, timeout: float = 5, **relay: object
) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await send(client, server, relay=relay_of(server, **relay), timeout=timeout)
    return caught.value
