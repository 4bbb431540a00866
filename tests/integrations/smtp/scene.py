"""A message, and a client that sends it to a test's own server."""

from typing import Any

from penstock.integrations.smtp import Client, RelayAddress, Sent
from tests.smtp_server import HOST, SmtpServer

SENDER = "sender@example.com"
MESSAGE = b"From: sender@example.com\r\nSubject: hello\r\n\r\nHello.\r\n"
TIMEOUT = 10.0


def relay_of(server: SmtpServer, **changes: Any) -> RelayAddress:
    """Return the address of the server; by default without TLS."""
    fields: dict[str, Any] = {
        "name": "test",
        "host": HOST,
        "port": server.port,
        "tls": "none",
    } | changes
    return RelayAddress(**fields)


async def send(
    client: Client,
    server: SmtpServer,
    *recipients: str,
    message: bytes = MESSAGE,
    smtputf8: bool = False,
    timeout: float = TIMEOUT,
    relay: RelayAddress | None = None,
) -> Sent:
    """Send one message to these recipients, or to one."""
    return await client.send(
        relay or relay_of(server),
        sender=SENDER,
        recipients=recipients or ("one@example.net",),
        message=message,
        smtputf8=smtputf8,
        timeout=timeout,
    )
