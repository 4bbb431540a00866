"""An outbox on a database of the test's own."""

from collections.abc import AsyncGenerator

import pytest

from penstock.base.clock import FakeClock
from tests.domains.outbox.scene import Scene, opened_outbox


@pytest.fixture
async def scene(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """An open app with the outbox; no worker runs."""
    async with opened_outbox(dsn, clock) as opened:
        yield opened
