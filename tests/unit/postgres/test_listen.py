"""Listening for notifications."""

import asyncio

from penstock.base.aio import alongside
from penstock.postgres.listen import listen
from penstock.postgres.pool import Pool


async def test_a_notification_is_received_with_its_payload(dsn: str, db: Pool) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    connected = asyncio.Event()

    async with alongside(listen(dsn, "bell", heard.put_nowait, on_connect=connected.set)):
        await connected.wait()
        await db.execute("SELECT pg_notify('bell', 'one')")
        await db.execute("SELECT pg_notify('other', 'two')")
        await db.execute("SELECT pg_notify('bell', 'three')")

        assert [await heard.get(), await heard.get()] == ["one", "three"]


async def test_a_listener_reconnects_after_its_connection_is_killed(dsn: str, db: Pool) -> None:
    """Notifications meanwhile are lost, so each connection calls `on_connect`."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    connections: asyncio.Queue[None] = asyncio.Queue()

    async with alongside(
        listen(dsn, "bell", heard.put_nowait, on_connect=lambda: connections.put_nowait(None))
    ):
        await connections.get()
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        await connections.get()
        await db.execute("SELECT pg_notify('bell', 'again')")

        assert await heard.get() == "again"
