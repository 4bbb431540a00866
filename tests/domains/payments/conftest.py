"""Payments on a database of the test's own."""

from collections.abc import AsyncGenerator

import pytest

from tests.domains.payments.scene import Scene, opened_payments


@pytest.fixture
async def scene(dsn: str) -> AsyncGenerator[Scene]:
    """An open app with payments; no worker runs."""
    async with opened_payments(dsn) as opened:
        yield opened
