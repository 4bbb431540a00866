"""An outbox on a database of the test's own, and a relay that misbehaves on demand."""

from collections.abc import AsyncGenerator

import pytest

from penstock.base.clock import FakeClock
from tests.domains.mail.outbox import Outbox, opened_outbox
from tests.smtp_server import SmtpServer, serving


@pytest.fixture
async def outbox(dsn: str, clock: FakeClock) -> AsyncGenerator[Outbox]:
    """An open app with mail; no worker runs, and there is no relay."""
    async with opened_outbox(dsn, clock) as opened:
        yield opened


@pytest.fixture
async def relay(outbox: Outbox) -> AsyncGenerator[SmtpServer]:
    """The relay of the outbox."""
    async with serving(SmtpServer()) as server:
        await outbox.relay_to(server)
        yield server
