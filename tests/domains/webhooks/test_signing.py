"""Signatures end to end: what a receiver gets is what its own library accepts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from svix.webhooks import Webhook as SvixWebhook
from svix.webhooks import WebhookVerificationError as SvixVerificationError

from penstock.domains.webhooks.secret import Profile, read_public_key, read_secret
from penstock.domains.webhooks.sign import verify
from tests.domains.webhooks.scene import Subscribed, Tenant, body_of
from tests.receiver import Received, Receiver, receiving

HOUR = timedelta(hours=1)
SIGNED = ("webhook-id", "webhook-timestamp", "webhook-signature")


async def deliver(tenant: Tenant, receiver: Receiver, **event: Any) -> Received:
    """Send an event and return the request that it became."""
    told = await tenant.send(**event)
    await tenant.until(told["id"], "delivered")
    return receiver.requests[-1]


async def rotate(tenant: Tenant, subscribed: Subscribed, **how: Any) -> str:
    path = f"/subscriptions/{subscribed.id}/secret"
    return body_of(await tenant.client.post(path, json=how), 201)["secret"]


async def retire(tenant: Tenant, subscribed: Subscribed) -> None:
    """Let the overlap be over."""
    await tenant.penstock.pool.execute(
        """
        UPDATE penstock.webhook_secret SET retires_at = now() - interval '1 second'
        FROM penstock.webhook_subscription AS s
        WHERE webhook_secret.subscription_no = s.subscription_no
            AND s.subscription_id = $1 AND retires_at < 'infinity'
        """,
        subscribed.id,
    )
    await tenant.change(subscribed)


def accepts(secret: str, request: Received) -> bool:
    """Say whether the receiver's library, with this secret, accepts a request."""
    try:
        Webhook(secret).verify(request.body.decode(), dict(request.headers))
    except WebhookVerificationError:
        return False
    return True


@pytest.mark.covers("B23", "B72")
async def test_standard_webhooks_verifies_what_was_sent(tenant: Tenant) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        request = await deliver(tenant, receiver, data={"amount": 1.0}, id="e1")

    verified = Webhook(subscribed.secret).verify(request.body.decode(), dict(request.headers))
    assert verified == json.loads(request.body)
    assert request.headers["webhook-id"] == "e1"
    assert abs(int(request.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60
    changed = Received(
        method="POST",
        path="/",
        headers=request.headers,
        body=request.body.replace(b"1.0", b"9.0"),
        head=b"",
        received_at=request.received_at,
        connection=1,
    )
    assert not accepts(subscribed.secret, changed)


@pytest.mark.covers("B72")
async def test_svix_verifies_what_was_sent(tenant: Tenant) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url, profile="svix")
        request = await deliver(tenant, receiver, data={"a": "ä"})

    SvixWebhook(subscribed.secret).verify(request.body, dict(request.headers))
    with pytest.raises(SvixVerificationError):
        SvixWebhook(subscribed.secret).verify(request.body + b" ", dict(request.headers))
    assert request.headers["svix-id"] == request.headers["webhook-id"]


@pytest.mark.covers("B72")
@pytest.mark.parametrize("profile", ["github", "stripe"])
async def test_receivers_of_github_and_stripe_can_verify(tenant: Tenant, profile: Profile) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(
            receiver.url, profile=profile, secret="a secret of sixteen letters"
        )
        request = await deliver(tenant, receiver)

    assert subscribed.secret == "a secret of sixteen letters"
    secrets = [read_secret(subscribed.secret, profile)]
    now = datetime.now(UTC)
    assert verify(request.headers, request.body, profile=profile, secrets=secrets, now=now) is None
    refused = verify(request.headers, b"{}", profile=profile, secrets=secrets, now=now)
    assert refused is not None


@pytest.mark.covers("B72")
@pytest.mark.parametrize("profile", ["standard", "svix"])
async def test_a_public_key_is_enough_to_verify_ed25519(tenant: Tenant, profile: Profile) -> None:
    """A receiver that cannot sign cannot lose the secret."""
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url, scheme="ed25519", profile=profile)
        request = await deliver(tenant, receiver)

    path = f"/subscriptions/{subscribed.id}/public-keys"
    (key,) = body_of(await tenant.client.get(path))["keys"]
    assert subscribed.secret.startswith("whsk_")
    assert key.startswith("whpk_")
    assert (
        verify(
            request.headers,
            request.body,
            profile=profile,
            secrets=[read_public_key(key)],
            now=datetime.now(UTC),
        )
        is None
    )


async def test_a_secret_for_hmac_has_no_public_half(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe()

    path = f"/subscriptions/{subscribed.id}/public-keys"
    assert body_of(await tenant.client.get(path)) == {"keys": []}


@pytest.mark.covers("B72")
async def test_every_attempt_is_signed_anew_under_the_same_id(tenant: Tenant) -> None:
    """An old signature would be refused as a repetition, and a new id would be a new event."""
    async with receiving(answers=[503, 200]) as receiver:
        subscribed = await tenant.subscribe(receiver.url, retry_schedule_seconds=[1.1])
        await deliver(tenant, receiver, id="e1")

    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == "e1"
    assert int(first.headers["webhook-timestamp"]) < int(second.headers["webhook-timestamp"])
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert accepts(subscribed.secret, first)
    assert accepts(subscribed.secret, second)


# ------------------------------------------------------------------------------------- rotation


@pytest.mark.covers("B72")
async def test_while_a_rotation_overlaps_both_secrets_verify(tenant: Tenant) -> None:
    """A receiver may change its secret at any moment of the overlap and refuses nothing."""
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        before = await deliver(tenant, receiver)
        new = await rotate(tenant, subscribed)
        during = await deliver(tenant, receiver)
        await retire(tenant, subscribed)
        after = await deliver(tenant, receiver)

    assert new != subscribed.secret
    assert [accepts(subscribed.secret, each) for each in (before, during, after)] == [
        True, True, False,
    ]  # fmt: skip
    assert [accepts(new, each) for each in (before, during, after)] == [False, True, True]


async def test_a_rotation_without_overlap_takes_hold_at_once(tenant: Tenant) -> None:
    """For a secret that somebody has stolen."""
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        await deliver(tenant, receiver)
        new = await rotate(tenant, subscribed, overlap_seconds=0)
        request = await deliver(tenant, receiver)

    assert accepts(new, request)
    assert not accepts(subscribed.secret, request)


async def test_a_worker_notices_the_end_of_an_overlap_by_itself(tenant: Tenant) -> None:
    """Nobody changes the subscription when a secret retires."""
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        await rotate(tenant, subscribed, overlap_seconds=0.5)
        early = await deliver(tenant, receiver)

        late = early
        while accepts(subscribed.secret, late):
            late = await deliver(tenant, receiver)

    assert accepts(subscribed.secret, early)
    assert (late.received_at - early.received_at) < timedelta(seconds=5)


async def test_the_third_secret_ends_the_first(tenant: Tenant) -> None:
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        second = await rotate(tenant, subscribed)
        third = await rotate(tenant, subscribed)
        request = await deliver(tenant, receiver)

    assert [accepts(each, request) for each in (subscribed.secret, second, third)] == [
        False, True, True,
    ]  # fmt: skip


async def test_a_rotation_may_bring_a_secret_and_another_scheme(tenant: Tenant) -> None:
    brought = "whsec_" + "A" * 32
    async with receiving() as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        assert await rotate(tenant, subscribed, secret=brought) == brought
        request = await deliver(tenant, receiver)
        private = await rotate(tenant, subscribed, scheme="ed25519")
        both = await deliver(tenant, receiver)

    assert accepts(brought, request)
    assert private.startswith("whsk_")
    assert accepts(brought, both)
    path = f"/subscriptions/{subscribed.id}/public-keys"
    assert len(body_of(await tenant.client.get(path))["keys"]) == 1


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"secret": "short"}, "secret"),
        ({"secret": "whsec_AAAA"}, "secret"),
        ({"secret": "whsec_***"}, "secret"),
        ({"overlap_seconds": -1}, "overlap_seconds"),
        ({"overlap_seconds": 31 * 86_400}, "overlap_seconds"),
        ({"overlap_seconds": 1e300}, "overlap_seconds"),
        ({"scheme": "rot13"}, "scheme"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_rotation_that_cannot_be_is_refused(
    tenant: Tenant, how: dict[str, Any], field: str
) -> None:
    subscribed = await tenant.subscribe()

    response = await tenant.client.post(f"/subscriptions/{subscribed.id}/secret", json=how)

    assert response.status_code == 400
    assert response.json()["field"] == field
    assert "whsec_***" not in response.text


@pytest.mark.parametrize("profile", ["github", "stripe"])
async def test_profiles_that_know_only_hmac_refuse_another_scheme(
    tenant: Tenant, profile: str
) -> None:
    body = {"url": "http://127.0.0.1:9/", "event_types": ["*"], "profile": profile}
    made = await tenant.client.post("/subscriptions", json=body | {"scheme": "ed25519"})
    assert made.status_code == 400
    assert made.json()["field"] == "scheme"


async def test_a_secret_is_shown_once(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe()
    new = await rotate(tenant, subscribed)

    pages = [
        await tenant.client.get(path)
        for path in (
            f"/subscriptions/{subscribed.id}",
            f"/subscriptions/{subscribed.id}/endpoint-status",
            f"/subscriptions/{subscribed.id}/public-keys",
            f"/subscriptions?tenant={tenant.name}",
            f"/audit?subject={subscribed.id}",
        )
    ]

    for page in pages:
        assert page.status_code == 200
        for secret in (subscribed.secret, new):
            assert secret.removeprefix("whsec_") not in page.text
