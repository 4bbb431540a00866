"""Schedule payments in your own transaction, repeat one, and change others before they leave."""

import asyncio
from datetime import UTC, datetime

import msgspec

from penstock import Penstock
from penstock.domains.payments.errors import PaymentConflict
from penstock.domains.payments.inspect import list_payments
from penstock.domains.payments.operate import cancel, reschedule
from penstock.domains.payments.payment import NewPayment, Party
from penstock.domains.payments.schedule import Payments

app = Penstock()

RENT = NewPayment(
    payment_id="rent-2031-09",
    amount="1250.00",
    currency="EUR",
    debtor=Party(name="Ada", iban="DE89370400440532013000"),
    creditor=Party(name="Homes Ltd", iban="FR1420041010050500013M02606"),
    participant_id="ada",
    rail_type="simulator",
    execute_at=datetime(2031, 9, 1, 16, tzinfo=UTC),
)


async def main() -> None:
    """Roll one payment back, schedule three, repeat one, and change two of them."""
    async with app, app.pool.acquire() as db:
        payments = app.api(Payments)

        rolled_back = db.transaction()
        await rolled_back.start()
        await payments.schedule(RENT, connection=db)
        await rolled_back.rollback()
        print("rent-2031-09 was rolled back")

        named = ["rent-2031-10", "rent-2031-11", "rent-2031-12"]
        rents = [msgspec.structs.replace(RENT, payment_id=name) for name in named]
        async with db.transaction():
            await payments.schedule_many(rents, connection=db)

        again = await payments.schedule(rents[0])
        print(f"{again.payment_id} again is new: {again.is_new}")
        try:
            await payments.schedule(msgspec.structs.replace(rents[0], amount="1.00"))
        except PaymentConflict as conflict:
            print(f"{conflict.payment_id} with another amount is a conflict")

        await reschedule(db, named[1], datetime(2031, 11, 2, 9, tzinfo=UTC), who="ada")
        await cancel(db, named[2], who="ada", reason="moved out")
        for each in (await list_payments(db)).payments:
            print(f"{each.payment_id} at {each.scheduled_at:%d.%m. %H:%M} is {each.status}")


if __name__ == "__main__":
    asyncio.run(main())
