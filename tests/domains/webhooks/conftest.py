"""An open app, its API without a network, and a tenant that belongs to one test.

What begins with `shared`, and `tenant` itself, stand on one database for the session, where a
worker delivers and repeats quickly. With `own` comes a database of the test's own, where nothing is
delivered unless the test says so; that of `timed` goes by the fake clock, limits included.
"""

from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.limits.local import LocalGate
from penstock.postgres.embedded import Server
from tests.api.scene import Callers, called, opened
from tests.database import copy_database
from tests.domains.webhooks.scene import (
    Tenant,
    body_of,
    hurry,
    make_tenant,
    opened_with,
    working,
)

SHARED = "webhooks_shared"


@pytest.fixture(scope="session")
async def shared_penstock(server: Server, template: str) -> AsyncGenerator[Penstock]:
    """An open app whose worker runs."""
    dsn = await copy_database(server.dsn, template, SHARED)
    async with opened(dsn) as app:
        await hurry(app)
        async with working(app):
            yield app


@pytest.fixture(scope="session")
async def shared_callers(shared_penstock: Penstock) -> AsyncGenerator[Callers]:
    """One client per scope, and one without a key."""
    async with called(shared_penstock, create_app(shared_penstock)) as clients:
        yield clients


@pytest.fixture(scope="session")
def shared_admin(shared_callers: Callers) -> AsyncClient:
    """A client that may do everything."""
    return shared_callers.admin


@pytest.fixture
async def tenant(shared_admin: AsyncClient, shared_penstock: Penstock) -> AsyncGenerator[Tenant]:
    """A tenant of the shared database, where a worker runs.

    At its end there are no subscriptions any more: the worker would go on trying to reach them, and
    tell of it, while other tests look at the log.
    """
    yield make_tenant(shared_admin, shared_penstock)
    for each in body_of(await shared_admin.get("/subscriptions"))["subscriptions"]:
        (await shared_admin.delete(f"/subscriptions/{each['id']}")).raise_for_status()


@pytest.fixture
def own(admin: AsyncClient, penstock: Penstock) -> Tenant:
    """A tenant of the test's own database."""
    return make_tenant(admin, penstock)


@pytest.fixture
def gate(clock: FakeClock) -> LocalGate:
    """A gate that goes by the test's clock and leaves nothing to chance."""
    return LocalGate(clock, chance=lambda: 0.5)


@pytest.fixture
async def timed(dsn: str, gate: LocalGate) -> AsyncGenerator[Tenant]:
    """A tenant of the test's own database, whose deliveries pass `gate`."""
    async with opened_with(dsn, gate=gate) as app, called(app, create_app(app)) as clients:
        yield make_tenant(clients.admin, app)
