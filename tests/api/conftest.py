"""An open app on this test's own database, its API without a network, and a caller per scope.

What begins with `shared` stands on one database for the session: for tests that show that a
request is refused, of which there are hundreds and none of which may leave anything behind.
"""

from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient
from starlette.types import ASGIApp

from penstock import Penstock
from penstock.api import create_app
from penstock.postgres.embedded import Server
from tests.api.scene import Callers, called, opened
from tests.database import copy_database

SHARED = "api_shared"


@pytest.fixture
async def penstock(dsn: str) -> AsyncGenerator[Penstock]:
    """An open app with a lane of plain JSON, `work`, and a typed one, `payments`."""
    async with opened(dsn) as app:
        yield app


@pytest.fixture
def api(penstock: Penstock) -> ASGIApp:
    """The app's API."""
    return create_app(penstock)


@pytest.fixture
async def callers(penstock: Penstock, api: ASGIApp) -> AsyncGenerator[Callers]:
    """One client per scope, and one without a key."""
    async with called(penstock, api) as clients:
        yield clients


@pytest.fixture
def admin(callers: Callers) -> AsyncClient:
    """A client that may do everything."""
    return callers.admin


@pytest.fixture(scope="session")
async def shared_penstock(server: Server, template: str) -> AsyncGenerator[Penstock]:
    """As `penstock`, for all tests that write nothing."""
    dsn = await copy_database(server.dsn, template, SHARED)
    async with opened(dsn) as app:
        yield app


@pytest.fixture(scope="session")
async def shared_callers(shared_penstock: Penstock) -> AsyncGenerator[Callers]:
    """As `callers`, for all tests that write nothing."""
    async with called(shared_penstock, create_app(shared_penstock)) as clients:
        yield clients


@pytest.fixture(scope="session")
def shared_admin(shared_callers: Callers) -> AsyncClient:
    """As `admin`, for all tests that write nothing."""
    return shared_callers.admin
