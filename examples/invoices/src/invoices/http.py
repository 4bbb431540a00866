"""The endpoint: POST /invoices."""

from typing import Annotated

import msgspec
from msgspec import Meta

from invoices.errors import InvoiceConflict
from penstock.contract import Call, NoParameters, Reply
from penstock.postgres.statement import statement

CREATE = statement(__package__, "create.sql")

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9-]{1,64}$")]


class Invoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the request and of the response."""

    number: Name
    customer: Name
    amount_cents: Annotated[int, Meta(ge=1, le=10**15)]


async def create(call: Call[NoParameters, Invoice]) -> Reply[Invoice]:
    """Create an invoice, to be sent; a repeat is harmless."""
    given = call.body
    async with call.connection() as db:
        is_stored = await db.fetchval(CREATE, given.number, given.customer, given.amount_cents)
    if not is_stored:
        raise InvoiceConflict(given.number)
    return Reply(given, 201)
