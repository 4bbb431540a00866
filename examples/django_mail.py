"""Send Django's mails through Penstock: a rollback of Django's transaction removes the mail."""

import asyncio

import django
from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import connection, transaction
from psycopg.conninfo import conninfo_to_dict

from penstock import Penstock
from penstock.domains.mail.inspect import MailFilter, list_mails, list_recipients, read_mail

app = Penstock()


class OutOfStock(Exception):
    """An error of the shop that rolls an order back."""


def configure(address: str) -> None:
    """Do what the settings.py of a Django project does."""
    options = conninfo_to_dict(address)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname"),
        "OPTIONS": options,
    }
    settings.configure(
        DATABASES={"default": database},
        EMAIL_BACKEND="penstock.django.EmailBackend",
        DEFAULT_FROM_EMAIL="Shop <shop@example.com>",
        USE_TZ=True,
        TIME_ZONE="UTC",
    )
    django.setup()


def take_orders() -> None:
    """Do what views do, in Django's own thread and on its own connection."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE shop_order (number integer)")
    try:
        order(1, in_stock=False)
    except OutOfStock:
        print("order 1 was rolled back, and its mail with it")
    order(2, in_stock=True)
    connection.close()


def order(number: int, *, in_stock: bool) -> None:
    """Store an order and send its mail, both or neither."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_order VALUES (%s)", [number])
        mail = EmailMultiAlternatives(
            subject=f"Order {number}",
            body="Thank you.",
            to=["Ada <ada@example.org>"],
            bcc=["archive@example.com"],
            headers={"X-Penstock-Key": f"shop-order-{number}", "X-Penstock-Tags": "orders"},
        )
        mail.attach_alternative("<p>Thank you.</p>", "text/html")
        mail.send()
        if not in_stock:
            raise OutOfStock


async def main() -> None:
    """Take two orders in Django, and show what became of the mails that a worker sends."""
    async with app, app.pool.acquire() as db:
        configure(app.address)
        await asyncio.to_thread(take_orders)
        (mail,) = (await list_mails(db, only=MailFilter(tag="orders"))).mails
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(app.run_worker(stop))
            while (await read_mail(db, mail.id)).status != "sent":  # noqa: ASYNC110  As over REST.
                await asyncio.sleep(0.05)
            stop.set()
        print(f"{mail.subject} from {mail.sender}")
        for recipient in await list_recipients(db, mail.id):
            print(f"{recipient.kind} {recipient.address}: {recipient.result}")


if __name__ == "__main__":
    asyncio.run(main())
