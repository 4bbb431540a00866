"""The event loop of production has transports of its own: they are handed over as well."""

import asyncio
import ssl

import pytest
import trustme
import uvloop

from penstock.integrations.smtp import Client, SendFailed
from tests.integrations.smtp.scene import relay_of, send
from tests.smtp_server import SmtpServer, serving


@pytest.mark.parametrize("policy", ["none", "starttls", "tls"])
def test_messages_leave_and_a_lost_reply_is_unknown_on_uvloop(policy: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(send_two_and_lose_the_third(policy))


async def send_two_and_lose_the_third(policy: str) -> None:
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(served)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    async with (
        Client(tls=trusted) as client,
        serving(SmtpServer(tls=served), is_tls=policy == "tls") as server,
    ):
        relay = relay_of(server, host="localhost", tls=policy)
        message = b"Subject: x\r\n\r\n" + (b"y" * 70 + b"\r\n") * 1024
        for _ in range(2):
            sent = await send(client, server, relay=relay, message=message)
            assert sent.replies[0].code == 250
        server.on("DOT", drop=True)
        with pytest.raises(SendFailed) as caught:
            await send(client, server, relay=relay, message=message)

        assert caught.value.is_unknown
        assert len(server.messages) == 3
        assert server.connections_total == 1
