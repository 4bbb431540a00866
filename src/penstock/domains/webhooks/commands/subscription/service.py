"""Get the subscription service from the click context, where the group has put it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

import click

from penstock.console.database import ask
from penstock.domains.webhooks.subscription import SubscriptionService
from penstock.postgres.pool import Connection

T = TypeVar("T")

# Takes the data folder that was typed, if any.
OpenService: TypeAlias = Callable[[Path | None], SubscriptionService]


def ask_service(
    data_dir: Path | None, work: Callable[[SubscriptionService, Connection], Awaitable[T]]
) -> T:
    """Do `work` on one connection to the database that is there, and return its result."""
    open_service: OpenService = click.get_current_context().obj

    async def run(db: Connection) -> T:
        return await work(open_service(data_dir), db)

    return ask(data_dir, run)
