"""Our side of the bars of mail: mails queued beforehand, a relay, and what is on its way out."""

import contextlib
import tempfile
from collections.abc import Generator
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.dispatch import SECRET_KEY, WHO, Scene
from bench.peers.mail_text import RECIPIENT, SENDER, SUBJECT, text
from bench.smtp_sink import HOST
from penstock.base.vault import Vault
from penstock.domains.mail.address import domain_of
from penstock.domains.mail.enqueue import send_prepared
from penstock.domains.mail.new_mail import NewMail, prepare
from penstock.domains.mail.relay import LimitScope, MailLimit, SmtpRelay, put_limit, put_relay

RELAY: Final = "bench"
DOMAIN: Final = domain_of(RECIPIENT)
UNREACHED: Final = 100_000.0  # A rate that judges each mail, and delays none.
CHUNK_BYTES: Final = 4_000_000  # Of mails in one statement.


async def queue(scene: Scene, mails: int, *, size: int) -> None:
    """Have mails accepted."""
    scene.bench.report.doing(f"penstock: accept {mails:,} mails", mails)
    new = prepare(NewMail(sender=SENDER, to=[RECIPIENT], subject=SUBJECT, text=text(size)))
    chunk = max(1, min(1_000, CHUNK_BYTES // size))
    async with scene.pool.acquire() as db:
        for first in range(0, mails, chunk):
            await send_prepared(db, [new] * min(chunk, mails - first))
            scene.bench.report.progress(first)


async def relay_to(scene: Scene, port: int, *, connections: int) -> None:
    """Let all mails go to a server on this machine."""
    relay = SmtpRelay(name=RELAY, host=HOST, port=port, tls="none", connections_max=connections)
    async with scene.pool.acquire() as db:
        await put_relay(db, relay, vault=Vault(SECRET_KEY), who=WHO)


async def limit(scene: Scene, scope: LimitScope, name: str, *, per_second: float) -> None:
    """Set a rate."""
    async with scene.pool.acquire() as db:
        await put_limit(db, MailLimit(scope=scope, name=name, per_second=per_second), who=WHO)


async def guard(scene: Scene) -> None:
    """Set a rate that is never reached for the relay, the sender and each domain."""
    await limit(scene, "relay", RELAY, per_second=UNREACHED)
    await limit(scene, "sender", SENDER, per_second=UNREACHED)
    await limit(scene, "domain", "*", per_second=UNREACHED)


@contextlib.contextmanager
def signing() -> Generator[dict[str, str]]:
    """Give a worker's variables for DKIM with RSA of 2048 bits."""
    key = rsa.generate_private_key(65537, 2048)
    with tempfile.NamedTemporaryFile(prefix="pbench-dkim-", suffix=".pem") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        yield {
            "PENSTOCK_DKIM_DOMAIN": domain_of(SENDER),
            "PENSTOCK_DKIM_SELECTOR": "bench",
            "PENSTOCK_DKIM_KEY": file.name,
        }
