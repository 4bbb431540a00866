"""`penstock listen` as the developer of a receiver uses it: real processes and deliveries."""

import json
import re
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock import Penstock
from penstock.domains.webhooks.secret import make_secret, read_secret
from penstock.domains.webhooks.sign import Signer
from penstock.postgres.embedded import running, stop
from penstock.postgres.pool import Pool
from tests.e2e.command import Command, penstock

LISTENS = r"penstock listens on (http://127\.0\.0\.1:\d+/)"
ALLOWED = {
    "PENSTOCK_EGRESS_ALLOW": "127.0.0.0/8",
    "PENSTOCK_SECRET_KEY": "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI=",
}


def send(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
    with penstock("event", "send", *arguments, folder=folder, environment=environment) as command:
        assert command.wait() == 0, command.lines


def post(url: str, secret: str, body: bytes) -> int:
    """Send what Penstock would, and return the status that is answered."""
    signer = Signer("standard", [read_secret(secret, "standard")])
    lines = signer.headers("evt_1", int(datetime.now(UTC).timestamp()), body).decode()
    headers = dict(line.split(": ", 1) for line in lines.split("\r\n") if line)
    return httpx.post(url, content=body, headers=headers).status_code


def requests_of(listen: Command) -> list[str]:
    """Return the first line of every request that was printed."""
    return [line for line in listen.lines if re.match(r"\d\d:\d\d:\d\d\.\d{3}Z ", line)]


def test_listen_subscribes_prints_a_retry_and_unsubscribes(folder: Path) -> None:
    """The first thing to try: two processes, and no secret to copy."""
    allowed = {"PENSTOCK_EGRESS_ALLOW": "127.0.0.0/8"}
    with penstock("up", "--port", "0", folder=folder, environment=allowed) as up:
        up.wait_for("worker.started")
        with penstock(
            *("listen", "--subscribe", "order.*", "--fail-first", "1"),
            folder=folder,
            environment=allowed,
        ) as listen:
            listen.wait_for("come here by subscription sub_")
            send(folder, "order.paid", '{"amount": 12.50}', "--id", "e1")
            send(folder, "invoice.paid", "--id", "e2")

            listen.wait_for(r"verified  order\.paid  e1  try 2  POST /  answered 200")
            assert listen.stop(signal.SIGINT) == 0

        with penstock("subscription", "list", folder=folder) as listed:
            listed.wait_for("there are no subscriptions here")
        assert up.stop() == 0

    first, second = requests_of(listen)
    assert "verified  order.paid  e1  POST /  answered 500" in first
    assert "NOT" not in first + second
    assert any('"amount": 12.50' in line for line in listen.lines)


ALLOW = "set PENSTOCK_EGRESS_ALLOW=127.0.0.0/8, here and where the worker runs"
CLOSED = {
    "loopback": (
        {"PENSTOCK_EGRESS_ALLOW": ""},
        rf" may not be reached: loopback; {re.escape(ALLOW)}",
    ),
    "all ports but one": (
        {"PENSTOCK_EGRESS_PORTS": "443"},
        r" port \d+ is not one of the allowed ports; give --port one of PENSTOCK_EGRESS_PORTS",
    ),
}


@pytest.mark.parametrize(("rule", "hint"), CLOSED.values(), ids=CLOSED)
async def test_if_the_egress_rules_refuse_the_url_the_setting_is_named(
    dsn: str, db: Pool, *, folder: Path, rule: dict[str, str], hint: str
) -> None:
    closed = ALLOWED | {"PENSTOCK_DATABASE_URL": dsn} | rule

    with penstock("listen", "--subscribe", "*", folder=folder, environment=closed) as listen:
        assert listen.wait() == 2

    (message,) = listen.lines
    assert re.fullmatch(rf"penstock: --subscribe: http://127\.0\.0\.1:\d+/{hint}", message), message
    assert await db.fetchval("SELECT count(*) FROM penstock.webhook_subscription") == 0


def test_requests_are_verified_with_the_secret_of_the_environment(folder: Path) -> None:
    """Without a database: a receiver's developer need not run Penstock."""
    secret = make_secret()
    environment = {"PENSTOCK_LISTEN_SECRET": secret}
    with penstock("listen", "--status", "202", folder=folder, environment=environment) as listen:
        url = listen.wait_for(LISTENS).group(1)

        assert post(url, secret, b'{"type": "order.paid"}') == 202
        assert post(url, make_secret(), b"{}") == 202
        listen.wait_for("NOT VERIFIED")
        assert listen.stop() == 0

    good, forged = requests_of(listen)
    assert "Z verified  order.paid  evt_1" in good
    assert "NOT VERIFIED (mismatch: no signature fits" in forged
    assert not any(secret in line for line in listen.lines)


def test_without_a_secret_requests_are_printed_as_not_verified(folder: Path) -> None:
    with penstock("listen", "--count", "1", folder=folder) as listen:
        url = listen.wait_for(LISTENS).group(1)
        httpx.post(url, content=b"hello")
        assert listen.wait() == 0

    (line,) = requests_of(listen)
    assert "not verified: no secret given" in line


@pytest.mark.parametrize("is_forged", [False, True])
def test_a_script_counts_requests_and_reads_json(folder: Path, *, is_forged: bool) -> None:
    """In a build the exit code says whether a sender signs as it should."""
    secret = make_secret()
    words = ("listen", "--json", "--count", "2", "--secret", secret, "--fail-first", "1")
    with penstock(*words, folder=folder) as listen:
        url = listen.wait_for(r'"url":"([^"]+)"').group(1)
        assert post(url, secret, b'{"n": 1}') == 500
        assert post(url, make_secret() if is_forged else secret, b"\xff") == 200
        assert listen.wait() == (1 if is_forged else 0)

    _, first, second = map(json.loads, listen.lines)
    assert (first["verdict"], first["try"], first["status"]) == ("verified", 1, 500)
    assert first["body"] == {"n": 1}
    assert first["headers"]["webhook-id"] == first["id"] == "evt_1"
    assert (second["verdict"], second["try"]) == ("mismatch" if is_forged else "verified", 2)


def test_a_port_in_use_and_a_bad_secret_are_reported_in_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with penstock("listen", "--port", port, folder=folder) as listen:
            assert listen.wait() == 2
    with penstock("listen", "--secret", "whsec_short", folder=folder) as refused:
        assert refused.wait() == 2

    (message,) = listen.lines
    assert message.startswith(f"penstock: --port: cannot listen on 127.0.0.1:{port}: ")
    assert refused.lines[0].startswith("penstock: --secret: ")
    assert "short" not in refused.lines[0]


async def test_a_subscription_that_cannot_be_deleted_is_named(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Deliveries to a closed port would fail for days."""
    with running(tmp_path_factory.mktemp("gone")) as server:
        async with Penstock(server.dsn):
            pass
        environment = ALLOWED | {"PENSTOCK_DATABASE_URL": server.dsn}
        with penstock("listen", "--subscribe", "*", folder=folder, environment=environment) as here:
            made = here.wait_for(r"subscription (sub_\w+)").group(1)
            stop(server)

            assert here.stop(signal.SIGINT) == 4

    assert here.lines[-1].endswith(f"delete it yourself: penstock subscription delete {made}")
