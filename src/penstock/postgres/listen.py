"""Hear NOTIFY on a connection of its own, and come back by itself when that is lost."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from penstock.base.aio import pauses
from penstock.base.errors import DatabaseAway
from penstock.base.log import Logger, get_logger
from penstock.postgres.pool import Connection, address, connect, database_away
from penstock.postgres.statement import statement

PROBE_INTERVAL = timedelta(seconds=30)  # A half-open TCP connection is noticed within this time.
PROBE_TIMEOUT = timedelta(seconds=10)  # A healthy server answers in a millisecond.

PROBE = statement(__package__, "probe.sql")


async def listen(
    dsn: str,
    channel: str,
    on_notify: Callable[[str], None],
    *,
    on_connect: Callable[[], None] = lambda: None,
    log: Logger | None = None,
) -> None:
    """Call `on_notify(payload)` for each notification, until cancelled.

    `on_connect` is called after every (re)connection: what was notified in between is lost, so the
    caller must look for work then. Both callbacks run on the loop and must not block.
    """
    log = log or get_logger()
    waits = pauses()
    while True:
        try:
            connection = await connect(dsn)
            waits = pauses()
            try:
                await _hear(connection, channel, on_notify, on_connect=on_connect)
            finally:
                connection.terminate()
        except DatabaseAway as away:
            pause = next(waits)
            log.warning(
                "listener.lost",
                address=address(dsn),
                channel=channel,
                reason=away.reason,
                retry_in_seconds=round(pause, 1),
            )
            await asyncio.sleep(pause)


async def _hear(
    connection: Connection,
    channel: str,
    on_notify: Callable[[str], None],
    *,
    on_connect: Callable[[], None],
) -> None:
    """Listen until the connection breaks, and raise DatabaseAway then."""
    lost = asyncio.Event()
    connection.add_termination_listener(lambda *_: lost.set())
    with database_away():
        await connection.add_listener(channel, lambda *heard: on_notify(heard[-1]))
        on_connect()
        while not lost.is_set():
            try:
                async with asyncio.timeout(PROBE_INTERVAL.total_seconds()):
                    await lost.wait()
            except TimeoutError:
                await connection.fetchval(PROBE, timeout=PROBE_TIMEOUT.total_seconds())
    raise DatabaseAway("the connection was closed")
