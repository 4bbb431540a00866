"""An instruction, the HTTP exchange that composition passes to rails, and a simulator."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.base.money import read_money
from penstock.compose.rails import ClientExchange
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.simulator.server import Simulator, open_simulator, serving
from penstock.integrations.http_client import Client, Egress

_numbers = itertools.count(1)


def instruction(*, instruction_id: str | None = None, **payload: Any) -> Instruction:
    number = next(_numbers)
    given = {"amount": "12.50", "currency": "EUR", "destination": {"iban": "x"}} | payload
    money = read_money(given)
    return Instruction(
        outbox_id=uuid4(),
        item_id=number,
        instruction_id=instruction_id or f"pay-{number}",
        participant_id="acme",
        sequence_id=number,
        idempotency_key=f"key-{number}",
        rail_type="bank",
        payload=given,
        amount=Decimal(money.amount),
        currency=money.currency,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


@asynccontextmanager
async def loopback_exchange() -> AsyncGenerator[ClientExchange]:
    async with Client(Egress((ip_network("127.0.0.0/8"),))) as client:
        yield ClientExchange(client)


@asynccontextmanager
async def simulating(
    folder: Path, *, is_idempotent: bool = True
) -> AsyncGenerator[tuple[Simulator, str]]:
    """Serve a simulator with its ledger in `folder`."""
    simulator = await open_simulator(folder / "ledger.sqlite3", is_idempotent=is_idempotent)
    with closing(simulator.ledger):
        async with serving(simulator) as url:
            yield simulator, url
