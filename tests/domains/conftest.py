"""What the tests of every domain have: an open app on a database of the test's own, and callers."""

from collections.abc import AsyncGenerator

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from tests.api.scene import Callers, called, opened


@pytest.fixture
async def penstock(dsn: str) -> AsyncGenerator[Penstock]:
    """An open app on this test's own database; no worker runs."""
    async with opened(dsn) as app:
        yield app


@pytest.fixture
async def callers(penstock: Penstock) -> AsyncGenerator[Callers]:
    """One client per scope, and one without a key."""
    async with called(penstock, create_app(penstock)) as clients:
        yield clients


@pytest.fixture
def admin(callers: Callers) -> AsyncClient:
    """A client that may do everything."""
    return callers.admin
