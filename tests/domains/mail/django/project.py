"""The Django project on a test's own database, called from the test's event loop."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import django
from django.core.management import call_command
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

T = TypeVar("T")

POSTGRESQL = ("default", "second")  # Aliases; both are the database of the test.


def set_up() -> None:
    """Load the settings, once in a process; no model can be imported before."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.domains.mail.django.shop.settings"
    django.setup()


@dataclass(frozen=True, slots=True)
class Project:
    """Runs Django's code in a thread: it blocks, and a connection belongs to its thread."""

    dsn: str

    async def open(self) -> None:
        """Point the project at the database, and create its tables."""
        database, options = split_address(self.dsn)
        for alias in POSTGRESQL:
            connections.settings[alias] |= {"NAME": database, "OPTIONS": dict(options)}
        await self.run(lambda: call_command("migrate", run_syncdb=True, verbosity=0))

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the code returns, with no connection left open."""

        def in_thread() -> T:
            try:
                return work()
            finally:
                connections.close_all()

        return await asyncio.to_thread(in_thread)


def split_address(dsn: str) -> tuple[str, dict[str, Any]]:
    """Return the name of the database, and everything else that libpq is to know."""
    options = conninfo_to_dict(dsn)
    return str(options.pop("dbname")), options
