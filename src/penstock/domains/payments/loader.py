"""What the execution of a claimed batch needs: the context of each payment, and the engine."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.domains.payments.payment import Notify
from penstock.kernel.item import Item
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

LOAD_PAYMENTS = statement(__package__, "load_payments.sql")

Engine = Literal["builtin", "temporal", "temporal_schedule"]
ON_TEMPORAL: tuple[Engine, ...] = ("temporal", "temporal_schedule")


class PaymentRef(Struct, frozen=True):
    """An item's payload: which payment is to be executed."""

    payment_id: str


class PaymentContext(Struct, frozen=True, kw_only=True):
    """What the first phase found out about a payment. Fields of later versions are ignored."""

    amount: str
    currency: str
    debtor: Mapping[str, Any]
    creditor: Mapping[str, Any]
    participant_id: str
    rail_type: str
    notify: Notify = Notify()


class LoadedPayment(Struct, frozen=True, kw_only=True):
    """A payment as its engine gets it. `context_json` is the context as it is stored."""

    payment_id: str
    item_type: str
    engine: Engine
    context_json: str
    context_version: int


async def load_payments(
    db: Connection, items: Sequence[Item[PaymentRef]]
) -> Sequence[LoadedPayment | PaymentRef]:
    """Return the payments of claimed items in their order; only the reference without a context.

    The items are of one lane, as a claim is, and so their payments are of one item type.
    """
    ids = [item.payload.payment_id for item in items]
    rows = await db.fetch(LOAD_PAYMENTS, items[0].lane, ids) if items else ()
    found = {row[0]: row for row in rows}
    return [
        item.payload if (row := found.get(item.payload.payment_id)) is None else _to_payment(row)
        for item in items
    ]


def read_context(payment: LoadedPayment) -> PaymentContext:
    """Return the context of a payment; raises msgspec.DecodeError if it is not one."""
    return _context.decode(payment.context_json)


_context = msgspec.json.Decoder(PaymentContext)


def _to_payment(row: Row) -> LoadedPayment:
    # In the order of the statement: by name they would take twice as long.
    payment_id, item_type, engine, context_json, context_version = row
    return LoadedPayment(
        payment_id=payment_id,
        item_type=item_type,
        engine=engine,
        context_json=context_json,
        context_version=context_version,
    )
