"""A handler that takes whole batches and returns one outcome per item."""

import asyncio

import msgspec

from penstock import Dead, Done, Item, Money, NewItem, Outcome, Penstock, Retry

app = Penstock()
finished = asyncio.Event()
PAYABLE = ["account-0", "account-1", "account-2", "account-3", "account-4"]
paid: set[str] = set()


class Payment(msgspec.Struct):
    """Amounts are Money: exact, and never a float."""

    to: str
    amount: Money


@app.handler("payments", batch_size=100, burst=100, rate=1000)
async def pay(batch: list[Item[Payment]]) -> list[Outcome]:
    """Send one file with many payments, and return the outcome of each."""
    outcomes = [pay_one(item) for item in batch]
    if paid.issuperset(PAYABLE):
        finished.set()
    return outcomes


def pay_one(item: Item[Payment]) -> Outcome:
    """Simulate a payment: some accounts are closed, some are busy for a time."""
    if item.payload.to == "closed":
        return Dead("the account is closed")
    if item.payload.to == "busy" and item.attempt == 1:
        return Retry("the account is busy")
    print(f"paid {item.payload.amount} to {item.payload.to}")
    paid.add(item.payload.to)
    return Done({"reference": f"ref-{item.id}"})


async def main() -> None:
    """Enqueue many items (by COPY, all or none), and run the worker until they are paid."""
    names = [*PAYABLE, "closed", "busy"]
    payments = [Payment(to=name, amount=Money("12.50")) for name in names]
    async with app:
        await app.enqueue_many(
            "payments", [NewItem(payload=each, key=each.to) for each in payments]
        )
        await app.run_worker(finished)


if __name__ == "__main__":
    asyncio.run(main())
