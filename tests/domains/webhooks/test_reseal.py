"""A change of the key that seals secrets: everything is sealed anew, and no receiver notices."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from standardwebhooks import Webhook

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.base.errors import BadSetting
from penstock.base.vault import Vault
from penstock.domains.webhooks import reseal as module
from penstock.domains.webhooks.reseal import RESEAL_SECRETS, Resealed, count_seals, reseal
from penstock.testing import run_due
from tests.api.scene import called
from tests.domains.webhooks.scene import Tenant, body_of, make_tenant, opened_with
from tests.receiver import receiving

OLD = b"the key that everything was sealed with"[:32]
NEW = b"the key that takes its place from now on"[:32]
HEADERS = {"Authorization": "Bearer open-sesame-4711"}


@asynccontextmanager
async def sealing(dsn: str, *keys: bytes) -> AsyncGenerator[Tenant]:
    """Run an installation that has these keys."""
    async with opened_with(dsn, vault=Vault(*keys)) as app, called(app, create_app(app)) as clients:
        yield make_tenant(clients.admin, app)


async def sealed_anew(app: Penstock, *keys: bytes) -> tuple[Resealed, list[int]]:
    """Seal anew with these keys; return also the steps that were told."""
    steps: list[int] = []
    async with app.pool.acquire() as db:
        return await reseal(db, Vault(*keys), who="test", on_step=steps.append), steps


async def marks(app: Penstock) -> dict[bytes, tuple[int, int]]:
    return {each.mark: (each.secrets, each.headers) for each in await count_seals(app.pool)}


@pytest.mark.covers("B72")
async def test_after_a_reseal_the_old_key_can_go_and_nobody_notices(
    dsn: str, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        async with sealing(dsn, OLD) as tenant:
            subscribed = await tenant.subscribe(receiver.url, headers=HEADERS)
            await tenant.send()
            path = f"/subscriptions/{subscribed.id}/secret"
            second = body_of(await tenant.client.post(path, json={}), 201)["secret"]

            done, steps = await sealed_anew(tenant.penstock, NEW, OLD)

            assert done == Resealed(secrets=2, headers=1, unopened=[])
            assert steps == [2, 1]
            assert await marks(tenant.penstock) == {Vault(NEW).mark: (2, 1)}
            audit = body_of(await tenant.client.get("/audit", params={"subject": "subscriptions"}))
            (line,) = audit["items"]
            assert line["action"] == "subscriptions.resealed"
            assert line["after"] == {"secrets": 2, "headers": 1}
        async with sealing(dsn, NEW) as tenant:
            await run_due(tenant.penstock, clock)

    (request,) = receiver.requests
    assert request.headers["authorization"] == HEADERS["Authorization"]
    for secret in (subscribed.secret, second):
        Webhook(secret).verify(request.body.decode(), dict(request.headers))


async def test_a_second_reseal_finds_nothing_to_do(dsn: str) -> None:
    async with sealing(dsn, OLD) as tenant:
        await tenant.subscribe(headers=HEADERS)
        await sealed_anew(tenant.penstock, NEW, OLD)

        assert await sealed_anew(tenant.penstock, NEW) == (
            Resealed(secrets=0, headers=0, unopened=[]),
            [],
        )


async def test_what_no_key_opens_is_named_and_left_as_it_is(dsn: str) -> None:
    async with sealing(dsn, OLD) as tenant:
        shut = await tenant.subscribe(headers=HEADERS)
    async with sealing(dsn, NEW, OLD) as tenant:
        await tenant.subscribe()

        done, _ = await sealed_anew(tenant.penstock, NEW)

        assert done == Resealed(secrets=0, headers=0, unopened=[shut.id])
        assert await marks(tenant.penstock) == {Vault(OLD).mark: (1, 1), Vault(NEW).mark: (1, 0)}


async def test_many_are_sealed_anew_a_few_at_a_time(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a subscription waits for a batch at most."""
    monkeypatch.setattr(module, "BATCH", 2)
    async with sealing(dsn, OLD) as tenant:
        for _ in range(5):
            await tenant.subscribe()

        done, steps = await sealed_anew(tenant.penstock, NEW, OLD)

    assert (done.secrets, steps) == (5, [2, 2, 1])


async def test_what_nobody_needs_any_more_keeps_no_key_alive(dsn: str) -> None:
    async with sealing(dsn, OLD) as tenant:
        gone = await tenant.subscribe(headers=HEADERS)
        await tenant.client.delete(f"/subscriptions/{gone.id}")
        rotated = await tenant.subscribe()
        path = f"/subscriptions/{rotated.id}/secret"
        await tenant.client.post(path, json={"overlap_seconds": 0})

        assert await marks(tenant.penstock) == {Vault(OLD).mark: (1, 0)}
        done, _ = await sealed_anew(tenant.penstock, NEW, OLD)

        assert done == Resealed(secrets=1, headers=0, unopened=[])


async def test_a_seal_that_was_changed_meanwhile_is_not_undone(dsn: str) -> None:
    async with sealing(dsn, OLD) as tenant:
        await tenant.subscribe()
        pool = tenant.penstock.pool
        row = await pool.fetchrow("SELECT secret_no, sealed FROM penstock.webhook_secret")
        assert row is not None

        changed = await pool.fetch(RESEAL_SECRETS, [row["secret_no"]], [b"as read"], [b"new"])

        assert changed == []
        assert await pool.fetchval("SELECT sealed FROM penstock.webhook_secret") == row["sealed"]


async def test_without_a_key_nothing_is_touched(dsn: str) -> None:
    async with sealing(dsn, OLD) as tenant:
        await tenant.subscribe()

        with pytest.raises(BadSetting, match="is not set"):
            await sealed_anew(tenant.penstock)

        assert await marks(tenant.penstock) == {Vault(OLD).mark: (1, 0)}
