"""What tests of the Django backend do again and again: look at the mails, and have them sent."""

import asyncio
from collections.abc import Callable
from typing import Any

from django.test import Client

from tests.domains.mail.outbox import ADA, Outbox
from tests.smtp_server import SmtpServer


class RolledBack(Exception):
    """Ends a transaction of a test."""


async def rows_of(outbox: Outbox) -> list[dict[str, Any]]:
    rows = await outbox.app.pool.fetch("SELECT * FROM penstock.mail ORDER BY id")
    return [dict(row.items()) for row in rows]


async def work_until(outbox: Outbox, relay: SmtpServer, count: int) -> None:
    """Run a real worker until the relay has had so many messages, and then to its end."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.app.run_worker(stop))
        await relay.reached("DOT", count)
        stop.set()


def post_order(**more: Any) -> Callable[[], int]:
    """Return a call of the view, which returns the status of its answer."""
    return lambda: Client().post("/orders/", {"number": 17, "to": ADA} | more).status_code
