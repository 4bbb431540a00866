"""Enqueue in your own transaction: a commit dispatches the item, a rollback removes it."""

import asyncio

import asyncpg

from penstock import Item, Penstock

app = Penstock()
mailed = asyncio.Event()


@app.handler("mails")
async def mail(item: Item[dict[str, int]]) -> None:
    """Runs only for committed orders."""
    print("mail about order", item.payload["order"])
    mailed.set()


class OutOfStock(Exception):
    """An error of the shop that rolls an order back."""


async def order(db: asyncpg.Connection, number: int, *, in_stock: bool) -> None:
    """Insert an order and enqueue its mail, both or neither."""
    async with db.transaction():
        await db.execute("INSERT INTO shop_order VALUES ($1)", number)
        await app.enqueue("mails", {"order": number}, connection=db)
        if not in_stock:
            raise OutOfStock


async def main() -> None:
    """Place two orders, one of which fails, and send the mail of the other."""
    async with app:
        db = await asyncpg.connect(app.address)
        await db.execute("CREATE TABLE IF NOT EXISTS shop_order (number integer)")
        try:
            await order(db, 1, in_stock=False)
        except OutOfStock:
            print("order 1 was rolled back, and its mail with it")
        await order(db, 2, in_stock=True)
        await db.close()
        await app.run_worker(mailed)


if __name__ == "__main__":
    asyncio.run(main())
