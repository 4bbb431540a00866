"""Payments on the file's Temporal server."""

from collections.abc import AsyncGenerator

import pytest

from penstock.base.clock import FakeClock
from tests.domains.outbox.sending.ledger import Ledger, keeping
from tests.domains.payments.temporal.scene import TemporalScene, opened_on_temporal
from tests.temporal_server import TemporalServer


@pytest.fixture
async def ledger() -> AsyncGenerator[Ledger]:
    """A rail that books whatever it gets."""
    async with keeping(Ledger()) as kept:
        yield kept


@pytest.fixture
async def scene(
    dsn: str, *, clock: FakeClock, ledger: Ledger, temporal: TemporalServer
) -> AsyncGenerator[TemporalScene]:
    """An open app whose payments are executed on Temporal; no worker runs."""
    async with opened_on_temporal(dsn, clock, ledger, target=temporal.target) as opened:
        yield opened
