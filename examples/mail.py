"""Send a mail in your own transaction; without a relay it is captured, and can be previewed."""

import asyncio

from penstock import Penstock
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.inspect import list_recipients, read_mail
from penstock.domains.mail.new_mail import NewMail
from penstock.postgres.pool import Connection

app = Penstock()


async def main() -> None:
    """Roll one order back, keep another, and show what became of its mail."""
    async with app, app.pool.acquire() as db:
        await db.execute("CREATE TEMPORARY TABLE orders (number integer)")
        rolled_back = db.transaction()
        await rolled_back.start()
        await order(db, 1)
        await rolled_back.rollback()
        print("order 1 was rolled back, and its mail with it")

        async with db.transaction():
            mail_id = await order(db, 2)

        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(app.run_worker(stop))
            while (await read_mail(db, mail_id)).status != "sent":  # noqa: ASYNC110  As over REST.
                await asyncio.sleep(0.05)
            stop.set()
        for recipient in await list_recipients(db, mail_id):
            print(f"{recipient.kind} {recipient.address}: {recipient.result}")


async def order(db: Connection, number: int) -> int:
    """Store an order and its mail in the transaction of `db`."""
    await db.execute("INSERT INTO orders (number) VALUES ($1)", number)
    mail = NewMail(
        sender="Shop <shop@example.com>",
        to=["Ada <ada@example.org>"],
        bcc=["archive@example.com"],
        subject=f"Order {number}",
        text="Thank you.",
        key=f"confirmation-of-order-{number}",
    )
    accepted = await app.api(Mailer).send(mail, connection=db)
    return accepted.id


if __name__ == "__main__":
    asyncio.run(main())
