"""Secrets and headers are sealed in the database, and shown to nobody."""

import base64
import re
from ipaddress import ip_network
from typing import LiteralString, cast

import pytest
from structlog.testing import capture_logs

from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.errors import BadSetting
from penstock.base.vault import Vault
from penstock.domains.webhooks.subscription import NewSubscription, SubscriptionService
from penstock.integrations.http_client import Client, Egress
from penstock.testing import run_due
from tests.api.scene import called, problem
from tests.domains.webhooks.scene import Tenant, body_of, make_tenant, opened_with
from tests.receiver import receiving

PASSWORD = "Bearer open-sesame-4711"


async def dump(tenant: Tenant) -> str:
    """Return every row of every table of the database, as text."""
    pool = tenant.penstock.pool
    tables = await pool.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    text = ""
    for table in tables:
        query = cast("LiteralString", f"SELECT t::text AS row FROM {table['name']} AS t")
        text += "\n".join(row["row"] for row in await pool.fetch(query))
    return text


def traces_of(secret: str) -> list[str]:
    """Return what a secret would look like in a dump."""
    return [
        secret,
        secret.encode().hex(),
        base64.b64encode(secret.encode()).decode().rstrip("="),
        re.sub(r"^wh\w+_", "", secret),
    ]


@pytest.mark.covers("B72")
async def test_nothing_in_the_database_gives_a_secret_away(own: Tenant) -> None:
    """Neither a backup nor a replica nor the audit may hold what signs."""
    async with receiving():
        subscribed = await own.subscribe(headers={"Authorization": PASSWORD})
        private = await own.subscribe(scheme="ed25519")
        path = f"/subscriptions/{subscribed.id}/secret"
        new = body_of(await own.client.post(path, json={}), 201)["secret"]
        await own.change(subscribed, headers={"X-Api-Key": PASSWORD, "X-Other": "fish"})
        await own.send()

    found = await dump(own)
    assert subscribed.id in found
    assert "X-Api-Key" in found, "names are kept in clear"
    for secret in (subscribed.secret, private.secret, new, PASSWORD):
        for trace in traces_of(secret):
            assert trace not in found
    assert "whsec_" not in found
    assert "whsk_" not in found


async def test_headers_are_sent_and_only_their_names_are_shown(tenant: Tenant) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(
            receiver.url,
            headers={"Authorization": PASSWORD, "X-Team": "blue", "content-type": "text/x-json"},
        )
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")

        shown = await tenant.client.get(f"/subscriptions/{subscribed.id}")
        assert shown.json()["header_names"] == ["Authorization", "X-Team", "content-type"]
        assert PASSWORD not in shown.text
        audit = await tenant.client.get("/audit", params={"subject": subscribed.id})
        assert PASSWORD not in audit.text

        await tenant.change(subscribed, headers={"X-Team": "red"})
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")
        await tenant.change(subscribed, headers=None)
        event = await tenant.send()
        await tenant.until(event["id"], "delivered")

    first, second, third = receiver.requests
    assert first.headers["authorization"] == PASSWORD
    assert first.headers["x-team"] == "blue"
    assert first.headers["content-type"] == "text/x-json"
    assert first.head.lower().count(b"content-type") == 1
    assert "authorization" not in second.headers
    assert second.headers["x-team"] == "red"
    assert second.headers["content-type"] == "application/json"
    assert "x-team" not in third.headers
    assert (await tenant.read(subscribed))["header_names"] == []


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"Bad Name": "x"}, "headers.Bad Name"),
        ({"X-A": "one\r\nX-B: two"}, "headers.X-A"),
        ({"X-A": "ä" * 10 + "\n"}, "headers.X-A"),
        ({"": "x"}, "headers."),
        ({"X-A": "x" * 1_025}, "headers.X-A"),
        ({f"X-{n}": "x" for n in range(21)}, "headers"),
        ({"Host": "evil"}, "headers.Host"),
        ({"Content-Length": "3"}, "headers.Content-Length"),
        ({"Transfer-Encoding": "chunked"}, "headers.Transfer-Encoding"),
        ({"webhook-signature": "v1,mine"}, "headers.webhook-signature"),
        ({"Webhook-Id": "mine"}, "headers.Webhook-Id"),
        ({"X-A": 5}, "headers[...]"),
    ],
)
async def test_a_header_that_cannot_be_sent_is_refused(
    tenant: Tenant, headers: dict[str, object], field: str
) -> None:
    body = {"url": "http://127.0.0.1:9/", "event_types": ["*"], "headers": headers}

    told = problem(await tenant.client.post("/subscriptions", json=body), 400, "invalid-input")

    assert told["field"] == field


async def test_headers_do_not_depend_on_which_ports_are_allowed(dsn: str) -> None:
    """They are checked before it is known where they go."""
    egress = Egress([ip_network("127.0.0.0/8")], ports=frozenset({8443}))
    async with opened_with(dsn, egress=egress) as app, called(app, create_app(app)) as clients:
        tenant = make_tenant(clients.admin, app)

        await tenant.subscribe("http://127.0.0.1:8443/", headers={"X-Team": "blue"})


async def test_without_a_key_nothing_is_stored_and_the_error_says_what_to_do(own: Tenant) -> None:
    service = SubscriptionService(vault=Vault(), poster=Client(Egress()))
    new = NewSubscription(url="https://example.com/", event_types=["*"])

    async with own.penstock.pool.acquire() as db:
        with pytest.raises(BadSetting) as caught:
            await service.create(db, new, who="test")

    assert caught.value.name == "PENSTOCK_SECRET_KEY"
    assert "openssl rand" in caught.value.reason
    listed = body_of(await own.client.get("/subscriptions"))
    assert listed["subscriptions"] == []


async def test_the_log_names_the_missing_key(
    dsn: str,
) -> None:
    async with opened_with(dsn, vault=Vault()) as app, called(app, create_app(app)) as clients:
        body = {"url": "http://127.0.0.1:9/", "event_types": ["*"]}

        with capture_logs() as lines:
            response = await clients.admin.post("/subscriptions", json=body)

        problem(response, 500, "internal")
        listed = body_of(await clients.admin.get("/subscriptions"))
    assert listed["subscriptions"] == []
    (line,) = [line for line in lines if line["event"] == "request.failed"]
    assert line["reason"].startswith("PENSTOCK_SECRET_KEY: is not set")
    assert "openssl rand -base64 32" in line["reason"]


async def test_without_the_key_that_sealed_them_deliveries_wait_and_say_why(
    own: Tenant, clock: FakeClock
) -> None:
    """One worker with a wrong setting must not end what all others could deliver."""
    async with receiving() as receiver:
        await own.subscribe(receiver.url)
        event = await own.send()
        async with opened_with(
            own.penstock.address, vault=Vault(b"another key of 32 bytes, I think."[:32])
        ) as other:
            await run_due(other, clock)

    shown = await own.show(event["id"])
    assert receiver.requests == []
    assert (shown["status"], shown["attempts"]) == ("retrying", 0)
    assert "PENSTOCK_SECRET_KEY" in shown["last_error"]
