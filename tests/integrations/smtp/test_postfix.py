"""The client against Postfix: its server, and smtp-sink, which refuses and disconnects on order."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from penstock.integrations.smtp import Client, RelayAddress, SendFailed
from tests.integrations.smtp.postfix_server import postfix, reason_to_skip
from tests.integrations.smtp.scene import MESSAGE, SENDER
from tests.ports import free_port

SMTP_SINK = shutil.which("smtp-sink", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
START_SECONDS_MAX = 10.0

needs_sink = pytest.mark.skipif(SMTP_SINK is None, reason="Postfix's smtp-sink is not installed")


@asynccontextmanager
async def sink(*options: str) -> AsyncGenerator[RelayAddress]:
    """Run smtp-sink; as root it needs an account to change to."""
    assert SMTP_SINK is not None
    account = ("-u", "nobody") if os.geteuid() == 0 else ()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        SMTP_SINK, *account, *options, f"127.0.0.1:{port}", "1000", cwd="/"
    )
    try:
        await answering(port)
        yield RelayAddress(name="sink", host="127.0.0.1", port=port, tls="none", connections_max=4)
    finally:
        process.terminate()
        await process.wait()


async def answering(port: int) -> None:
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await reader.readline()
                writer.close()
                return


@needs_sink
async def test_500_messages_leave_on_few_connections(client: Client) -> None:
    async with sink() as relay, asyncio.TaskGroup() as group:
        sends = [group.create_task(post(client, relay)) for _ in range(500)]
        await asyncio.wait(sends)
        opened = client.stats().opened_total

    assert {send.result() for send in sends} == {250}
    assert 5 <= opened <= 9


@needs_sink
async def test_a_refusal_of_each_command_is_that_commands_reply(client: Client) -> None:
    async with sink("-f", "rcpt") as relay:
        assert await post(client, relay) == 500
    async with sink("-r", "data") as relay:
        assert await post(client, relay) == 450


@needs_sink
async def test_a_disconnect_at_the_dot_is_unknown(client: Client) -> None:
    async with sink("-q", ".") as relay:
        with pytest.raises(SendFailed) as caught:
            await post(client, relay)

    assert caught.value.is_unknown


@pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")
async def test_postfix_takes_messages_and_its_refusals_are_understood(client: Client) -> None:
    port = free_port()
    relay = RelayAddress(name="postfix", host="127.0.0.1", port=port, tls="none")
    async with postfix(port):
        await answering(port)
        partly = await client.send(
            relay,
            sender="a@relay.test",
            recipients=["one@relay.test", "nobody@relay.test"],
            message=MESSAGE,
            timeout=30,
        )
        split = await client.send(
            relay,
            sender="a@relay.test",
            recipients=["one@relay.test", "two@relay.test", "one@relay.test"],
            message=MESSAGE,
            timeout=30,
        )
        with pytest.raises(SendFailed) as caught:
            await client.send(
                relay,
                sender="a@relay.test",
                recipients=["one@relay.test"],
                message=b"x\r\n" * 50_000,
                timeout=30,
            )
        opened = client.stats().opened_total
        await client.close()

    assert [(reply.phase, reply.code, reply.enhanced) for reply in partly.replies] == [
        ("dot", 250, "2.0.0"),
        ("rcpt", 550, "5.1.1"),
    ]
    assert [(reply.code, reply.enhanced) for reply in split.replies] == [
        (250, "2.0.0"),
        (250, "2.0.0"),
        (452, "4.5.3"),
    ]
    assert caught.value.kind == "too_large"
    assert opened == 1


async def post(client: Client, relay: RelayAddress) -> int:
    sent = await client.send(
        relay, sender=SENDER, recipients=["one@example.net"], message=MESSAGE, timeout=30
    )
    return sent.replies[0].code
