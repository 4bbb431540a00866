"""Payments with a ledger as their rail, on a database of the test's own."""

from collections.abc import AsyncGenerator

import pytest

from penstock.base.clock import FakeClock
from tests.domains.outbox.sending.ledger import Ledger, keeping
from tests.domains.payments.executing.scene import Scene, opened_scene


@pytest.fixture
async def ledger() -> AsyncGenerator[Ledger]:
    """A rail that books whatever it gets."""
    async with keeping(Ledger()) as kept:
        yield kept


@pytest.fixture(autouse=True)
def no_temporal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No workflow may be started on a server that happens to run on this machine."""
    monkeypatch.setenv("TEMPORAL_TARGET", "127.0.0.1:1")


@pytest.fixture
async def scene(dsn: str, clock: FakeClock, ledger: Ledger) -> AsyncGenerator[Scene]:
    """An open app with payments; no worker runs."""
    async with opened_scene(dsn, clock, ledger) as opened:
        yield opened
