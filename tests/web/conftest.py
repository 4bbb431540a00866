"""An open app on this test's own database, and the API's callers, to see what `web` does for them.

Fixtures named `shared` have one database for the session: for tests that write nothing.
"""

from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.postgres.embedded import Server
from tests.api.scene import Callers, called, opened
from tests.database import copy_database

SHARED = "web_shared"


@pytest.fixture
async def penstock(dsn: str) -> AsyncGenerator[Penstock]:
    """An open app with a lane of plain JSON, `work`, and a typed one, `payments`."""
    async with opened(dsn) as app:
        yield app


@pytest.fixture
async def callers(penstock: Penstock) -> AsyncGenerator[Callers]:
    """One client per scope, and one without a key."""
    async with called(penstock, create_app(penstock)) as clients:
        yield clients


@pytest.fixture
def admin(callers: Callers) -> AsyncClient:
    """A client with every scope."""
    return callers.admin


@pytest.fixture(scope="session")
async def shared_callers(server: Server, template: str) -> AsyncGenerator[Callers]:
    """As `callers`, for all tests that write nothing."""
    dsn = await copy_database(server.dsn, template, SHARED)
    async with (
        opened(dsn) as app,
        called(app, create_app(app)) as clients,
    ):
        yield clients


@pytest.fixture(scope="session")
def shared_admin(shared_callers: Callers) -> AsyncClient:
    """As `admin`, for all tests that write nothing."""
    return shared_callers.admin
