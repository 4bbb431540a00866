"""Mail with real processes: `penstock up`, a real relay, and what refuses to start."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.e2e.command import penstock
from tests.fault.waiting import until
from tests.integrations.smtp.postfix_server import MAILBOX, postfix, reason_to_skip
from tests.integrations.smtp.test_postfix import answering
from tests.ports import free_port
from tests.smtp_server import HOST, SmtpServer, serving

PATIENCE = 60.0  # Seconds; a busy machine takes a few.
KEY = "a-key-of-the-test"
BODY: dict[str, Any] = {"from": "shop@example.com", "subject": "Hi", "text": "Hello."}


@dataclass(frozen=True, slots=True)
class Up:
    """A running `penstock up`."""

    url: str

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{self.url}{path}", json=body, headers=_headers())
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def get(self, path: str) -> Any:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.url}{path}", headers=_headers())
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def has_ended(self, mail_id: int) -> bool:
        return (await self.get(f"/mails/{mail_id}"))["mail"]["status"] in {"sent", "failed"}


def _headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def running_up(dsn: str, folder: Path, **environment: str) -> AsyncGenerator[Up]:
    """Run `penstock up` with mail; the relay may be a server in the loop of the test."""
    given = {
        "PENSTOCK_DATABASE_URL": dsn,
        "PENSTOCK_ADMIN_KEY": KEY,
        "PENSTOCK_DOMAINS": "mail",
        **environment,
    }
    with penstock("up", "--port", "0", folder=folder, environment=given) as command:
        found = await asyncio.to_thread(command.wait_for, r"api +(http://\S+)")
        yield Up(str(found.group(1)))
        assert await asyncio.to_thread(command.stop) == 0
    assert not any("s3cret" in line for line in command.lines)


@pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")
async def test_a_posted_mail_reaches_a_mailbox_behind_postfix(dsn: str, tmp_path: Path) -> None:
    """The whole way: REST, worker, STARTTLS, a real server, a file in a folder."""
    port = free_port()
    async with postfix(port) as mailbox:
        await answering(port)
        async with running_up(dsn, tmp_path, PENSTOCK_SMTP_URL=f"smtp://127.0.0.1:{port}") as up:
            to = [MAILBOX, "nobody@box.test"]
            mail_id = (await up.post("/mails", BODY | {"to": to}))["id"]
            await until(lambda: up.has_ended(mail_id), within=PATIENCE)
            shown = await up.get(f"/mails/{mail_id}")
            suppressed = await up.get("/mail-suppressions")

        async def has_arrived() -> bool:
            return mailbox.is_dir() and any(mailbox.iterdir())

        await until(has_arrived, within=PATIENCE)
        (arrived,) = [each.read_text() for each in mailbox.iterdir()]

    assert shown["mail"]["status"] == "failed"
    assert [(each["result"], each["code"], each["enhanced"]) for each in shown["recipients"]] == [
        ("sent", 250, "2.0.0"),
        ("failed", 550, "5.1.1"),
    ]
    assert [each["address"] for each in suppressed["suppressions"]] == ["nobody@box.test"]
    assert f"Message-ID: <{mail_id}." in arrived
    assert "with ESMTPS" in arrived
    assert arrived.rstrip().endswith("Hello.")


async def test_the_relay_of_the_environment_is_verified_and_gets_the_account(
    dsn: str, tmp_path: Path
) -> None:
    """With an account, PENSTOCK_SMTP_URL requires STARTTLS with a certificate that is known."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST).configure_cert(context)
    relay = SmtpServer(account=("shop", "s3cret"), tls=context)
    async with (
        serving(relay),
        running_up(
            dsn,
            tmp_path,
            PENSTOCK_SMTP_URL=f"smtp://shop:s3cret@{HOST}:{relay.port}",
            SSL_CERT_FILE=str(tmp_path / "ca.pem"),
        ) as up,
    ):
        mail_id = (await up.post("/mails", BODY | {"to": ["ada@example.org"]}))["id"]
        await until(lambda: up.has_ended(mail_id), within=PATIENCE)
        shown = await up.get(f"/mails/{mail_id}")

    assert [(each["result"], each["relay"]) for each in shown["recipients"]] == [
        ("sent", "default")
    ]
    assert (relay.steps["STARTTLS"], relay.steps["AUTH"]) == (1, 1)
    assert len(relay.messages) == 1


@pytest.mark.covers("C40")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DISPATCH_BACKOFF_JITTER", "1.5"),
        ("DISPATCH_BACKOFF_BASE_SECONDS", "0"),
        ("DISPATCH_BACKOFF_MAX_SECONDS", "10"),
        ("DISPATCH_MAX_ATTEMPTS", "0"),
    ],
)
async def test_a_worker_with_a_wrong_setting_exits_with_2_and_names_it(
    dsn: str, tmp_path: Path, *, variable: str, value: str
) -> None:
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_DOMAINS": "mail", variable: value}
    with penstock("worker", folder=tmp_path, environment=environment) as worker:
        code = await asyncio.to_thread(worker.wait)

    assert code == 2
    assert any(variable in line for line in worker.lines), worker.lines
