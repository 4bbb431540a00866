"""An open app, its API without a network, and a client per scope, as in the tests of the API.

Fixtures with the prefix `shared` use one database for the session: for tests with configs and
events of their own, and for tests of refused requests.
"""

from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.postgres.embedded import Server
from tests.api.scene import Callers, called, opened
from tests.database import copy_database

SHARED = "slots_shared"


@pytest.fixture
async def other_admin(dsn: str, callers: Callers) -> AsyncGenerator[AsyncClient]:
    """A client of a second node on this test's own database."""
    async with opened(dsn) as app, called(app, create_app(app)) as clients:
        assert clients.admin is not callers.admin
        yield clients.admin


@pytest.fixture(scope="session")
async def shared_penstock(server: Server, template: str) -> AsyncGenerator[Penstock]:
    """An open app for all tests with configs of their own."""
    dsn = await copy_database(server.dsn, template, SHARED)
    async with opened(dsn) as app:
        yield app


@pytest.fixture(scope="session")
async def shared_callers(shared_penstock: Penstock) -> AsyncGenerator[Callers]:
    """As `callers`, for all tests with configs of their own."""
    async with called(shared_penstock, create_app(shared_penstock)) as clients:
        yield clients


@pytest.fixture(scope="session")
def shared_admin(shared_callers: Callers) -> AsyncClient:
    """As `admin`, for all tests with configs of their own."""
    return shared_callers.admin
