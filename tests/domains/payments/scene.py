"""What tests of payments do again and again: schedule, and look at the rows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from httpx import AsyncClient, Response
from prometheus_client.parser import text_string_to_metric_families

from penstock import Penstock
from penstock.api import create_app
from penstock.compose import payments as composed
from penstock.domains.payments.payment import NewPayment
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.steps import STEPS, Steps
from tests.api.scene import called

Json = dict[str, Any]

AT_FOUR = datetime(2031, 1, 31, 16, tzinfo=UTC)
IBAN = "DE89370400440532013000"
OTHER_IBAN = "FR1420041010050500013M02606"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An app with payments alone, and a client that may do everything."""

    app: Penstock
    client: AsyncClient

    @property
    def payments(self) -> Payments:
        return self.app.api(Payments)

    async def post(self, payment_id: str = "p-1", **more: Any) -> Response:
        """Schedule a payment over REST."""
        return await self.client.post("/payments", json=a_body(payment_id, **more))

    async def rows(self) -> list[Json]:
        """Return all payments."""
        rows = await self.app.pool.fetch("SELECT * FROM penstock.payment ORDER BY payment_id")
        return [dict(row.items()) for row in rows]

    async def contexts(self) -> dict[str, Json]:
        """Return all contexts, by payment."""
        rows = await self.app.pool.fetch("SELECT * FROM penstock.payment_exec_context")
        return {row["payment_id"]: msgspec.json.decode(row["context_json"]) for row in rows}

    async def items(self) -> list[tuple[str, Json]]:
        """Return the keys and payloads of the items, in the order in which they are due."""
        rows = await self.app.pool.fetch(
            "SELECT key, payload FROM penstock.ready JOIN penstock.item USING (id, due_at)"
            " ORDER BY due_at, id"
        )
        return [(row["key"], msgspec.json.decode(row["payload"])) for row in rows]


def a_payment(payment_id: str = "p-1", **more: Any) -> NewPayment:
    return msgspec.convert(a_body(payment_id, **more), NewPayment)


def a_body(payment_id: str = "p-1", **more: Any) -> Json:
    given: Json = {
        "payment_id": payment_id,
        "item_type": "PAYMENT",
        "amount": "12.50",
        "currency": "EUR",
        "debtor": {"name": "Ada", "iban": IBAN},
        "creditor": {"name": "Bank of Paris", "iban": OTHER_IBAN, "bic": "PSSTFRPPXXX"},
        "execute_at": "2031-01-31T16:00:00Z",
        "participant_id": "ada",
        "rail_type": "simulator",
        "notify": {"mail": "ada@example.org", "event": True},
    }
    return given | more


@asynccontextmanager
async def opened_payments(dsn: str, steps: Steps = STEPS) -> AsyncGenerator[Scene]:
    """Open an app with payments whose phase A has these steps; no worker runs."""
    domain = replace(composed.DOMAIN, build=partial(composed.build, steps=steps))
    async with (
        Penstock(dsn=dsn, domains=[domain]) as app,
        called(app, create_app(app)) as callers,
    ):
        yield Scene(app=app, client=callers.admin)


async def read_gauge(app: Penstock, name: str) -> float:
    """Return what GET /metrics shows of a gauge without labels."""
    # Gauges are read every few seconds, so each scrape is the first one of a server.
    async with called(app, create_app(app)) as callers:
        text = (await callers.reader.get("/metrics")).text
    return next(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )
