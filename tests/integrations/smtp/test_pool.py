"""Connections: how many, how long, which is reused, and who waits for one."""

import asyncio
from datetime import timedelta

import pytest

from penstock.base.errors import InvalidInput
from penstock.integrations.smtp import Client, ClientLimits, RelayAddress, SendFailed
from tests.integrations.smtp.scene import MESSAGE, relay_of, send
from tests.smtp_server import SmtpServer, serving


async def test_messages_share_a_connection_up_to_the_limit(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        relay = relay_of(server, messages_per_connection_max=3, connections_max=1)
        for _ in range(7):
            await send(client, server, relay=relay)

        assert len(server.messages) == 7
        assert server.connections_total == 3
        assert server.connections_peak == 1
        assert server.steps["QUIT"] == 2


async def test_no_more_connections_than_allowed_are_open_at_once(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        relay = relay_of(server, connections_max=3, messages_per_connection_max=4)
        async with asyncio.TaskGroup() as group:
            for _ in range(60):
                group.create_task(send(client, server, relay=relay))

        assert len(server.messages) == 60
        assert server.connections_peak == 3
        assert server.connections_total == 15


async def test_waiting_messages_get_connections_in_their_order(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        relay = relay_of(server, connections_max=1)
        names = [f"r{number}@example.net" for number in range(20)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(send(client, server, name, relay=relay))

    assert [message.recipients[0] for message in server.messages] == names


async def test_a_message_that_waits_too_long_fails_as_busy_and_loses_no_permit(
    client: Client,
) -> None:
    async with serving(SmtpServer()) as server:
        relay = relay_of(server, connections_max=1)
        server.on("DOT", hang=True)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(refused(client, server, relay, timeout=0.5))
            await server.reached("DOT")
            waiting = await refused(client, server, relay, timeout=0.05)
        after = await send(client, server, relay=relay)

    assert (waiting.phase, waiting.kind) == ("connect", "busy")
    assert first.result().is_unknown
    assert after.replies[0].code == 250


async def test_a_cancelled_send_gives_its_permit_back_and_drops_its_connection(
    client: Client,
) -> None:
    async with serving(SmtpServer()) as server:
        relay = relay_of(server, connections_max=1)
        server.on("MAIL", hang=True)
        cancelled = asyncio.ensure_future(send(client, server, relay=relay))
        await server.reached("MAIL")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await server.emptied()
        after = await send(client, server, relay=relay)

    assert after.replies[0].code == 250


async def test_a_connection_that_was_closed_while_idle_is_replaced_unseen(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        await send(client, server)
        server.drop_connections()
        await server.emptied()
        sent = await send(client, server)

    assert sent.replies[0].code == 250
    assert server.connections_total == 2


@pytest.mark.parametrize("reply", ["421 4.4.2 idle for too long", None], ids=["421", "closed"])
async def test_a_reused_connection_that_ends_at_mail_is_replaced_once(
    client: Client, reply: str | None
) -> None:
    """The close crossed the message on its way: the relay has seen nothing of it."""
    async with serving(SmtpServer()) as server:
        await send(client, server)
        server.on("MAIL", reply, drop=True)
        sent = await send(client, server)

    assert sent.replies[0].code == 250
    assert len(server.messages) == 2
    assert server.connections_total == 2


async def test_a_new_connection_that_ends_at_mail_is_a_failure(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("MAIL", "421 4.7.0 too fast", drop=True, times=9)
        failed = await refused(client, server, relay_of(server), timeout=5)

    assert failed.reply is not None
    assert failed.reply.enhanced == "4.7.0"
    assert server.connections_total == 1


async def test_an_idle_connection_is_checked_before_it_gets_a_message() -> None:
    """A firewall may have forgotten it; RSET finds out while nothing is at stake."""
    limits = ClientLimits(check_after=timedelta(0))
    async with Client(limits=limits) as client, serving(SmtpServer()) as server:
        await send(client, server)
        await send(client, server)
        server.on("RSET", "451 4.3.0 not well")
        await send(client, server)

    assert server.steps["RSET"] == 2
    assert server.connections_total == 2
    assert len(server.messages) == 3


async def test_idle_connections_are_closed_with_quit(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        await send(client, server, relay=relay_of(server, idle_time=timedelta(milliseconds=20)))
        await server.reached("QUIT")
        await server.emptied()
        await send(client, server)

    assert server.connections_total == 2


async def test_closing_says_quit_and_refuses_later_messages() -> None:
    async with serving(SmtpServer()) as server:
        client = Client(ehlo_name="client.test")
        await send(client, server)
        await client.close()
        await server.emptied()
        failed = await refused(client, server, relay_of(server), timeout=5)

    assert server.steps["QUIT"] == 1
    assert failed.kind == "closed"


async def test_closing_fails_what_is_in_progress_and_what_waits() -> None:
    async with serving(SmtpServer()) as server:
        client = Client(ehlo_name="client.test")
        relay = relay_of(server, connections_max=1)
        server.on("DATA", hang=True)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(refused(client, server, relay, timeout=5))
            waiting = group.create_task(refused(client, server, relay, timeout=5))
            await server.reached("DATA")
            await client.close()

    assert (running.result().kind, running.result().is_unknown) == ("closed", False)
    assert waiting.result().kind == "closed"


async def test_a_changed_relay_gets_new_connections(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        await send(client, server)
        await send(client, server, relay=relay_of(server, connections_max=2))
        await server.reached("QUIT")
        stats = client.stats()

    assert server.connections_total == 2
    assert stats.opened_total == 2
    assert stats.idle_count == 1


@pytest.mark.parametrize(
    ("field", "value"), [("connections_max", 0), ("messages_per_connection_max", 0)]
)
def test_a_relay_without_connections_or_messages_is_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        relay_of(SmtpServer(port=25), **{field: value})

    assert caught.value.field == field


async def refused(
    client: Client, server: SmtpServer, relay: RelayAddress, *, timeout: float
) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await send(client, server, message=MESSAGE, relay=relay, timeout=timeout)
    return caught.value
