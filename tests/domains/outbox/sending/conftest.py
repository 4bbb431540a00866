"""A ledger on loopback, and the sending half of the outbox with a rail to it."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from penstock.base.clock import FakeClock
from tests.domains.outbox.sending.ledger import Ledger, keeping, loaded
from tests.domains.outbox.sending.scene import Outbox, opened_outbox

FINAL = timedelta(seconds=10)


@pytest.fixture
async def ledger() -> AsyncGenerator[Ledger]:
    """A rail that recognises no keys: it books whatever it gets."""
    async with keeping(Ledger()) as kept:
        yield kept


@pytest.fixture
async def outbox(dsn: str, clock: FakeClock, ledger: Ledger) -> AsyncGenerator[Outbox]:
    """An outbox with a rail that answers queries, and whose "not found" is final after 10 s."""
    rail = loaded(ledger.port, can_query=True, not_found_is_final_after=FINAL)
    async with opened_outbox(dsn, clock, rail) as opened:
        yield opened
