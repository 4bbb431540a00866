"""The office of subscriptions as a command opens it: with the key and the egress rules set here."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from penstock.app import choose_vault
from penstock.base.settings import settings
from penstock.cli.place import ask, find_dsn
from penstock.domains.webhooks.subscription import Office
from penstock.integrations.http_client.egress import Egress
from penstock.integrations.http_client.poster import Poster
from penstock.postgres.pool import Connection

T = TypeVar("T")


def ask_office(data_dir: Path | None, work: Callable[[Office, Connection], Awaitable[T]]) -> T:
    """Do `work` on one connection to the database that is there, and return its result."""

    async def run(db: Connection) -> T:
        return await work(open_office(data_dir), db)

    return ask(data_dir, run)


def open_office(data_dir: Path | None) -> Office:
    """Return the office; it connects to nothing, so that there is nothing to close."""
    chosen = settings()
    egress = Egress(chosen.egress_allow, ports=frozenset(chosen.egress_ports) or None)
    return Office(vault=choose_vault(find_dsn(data_dir), data_dir), poster=Poster(egress))
