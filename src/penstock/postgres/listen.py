"""LISTEN on a separate connection, and reconnect when it is lost."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from penstock.base.aio import retry_delays
from penstock.base.log import Logger, get_logger
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, address, connect, database_away
from penstock.postgres.statement import statement

CHECK_INTERVAL = timedelta(seconds=30)  # A half-open TCP connection is noticed within this time.
CHECK_TIMEOUT = timedelta(seconds=10)  # A healthy server answers in a millisecond.

CHECK_CONNECTION = statement(__package__, "check_connection.sql")


async def listen(
    dsn: str,
    channel: str,
    on_notify: Callable[[str], None],
    *,
    on_connect: Callable[[], None] = lambda: None,
    log: Logger | None = None,
) -> None:
    """Call `on_notify(payload)` for each notification, until cancelled.

    `on_connect` is called after every (re)connection: notifications in between are lost, so
    the caller must check for work then. Both callbacks run on the loop and must not block.
    """
    log = log or get_logger()
    delays = retry_delays()
    while True:
        try:
            connection = await connect(dsn)
            delays = retry_delays()
            try:
                await _listen(connection, channel, on_notify, on_connect=on_connect)
            finally:
                connection.terminate()
        except DatabaseAway as exc:
            delay = next(delays)
            log.warning(
                "listener.lost",
                address=address(dsn),
                channel=channel,
                reason=exc.reason,
                retry_in_seconds=round(delay, 1),
            )
            await asyncio.sleep(delay)


async def _listen(
    connection: Connection,
    channel: str,
    on_notify: Callable[[str], None],
    *,
    on_connect: Callable[[], None],
) -> None:
    """Listen until the connection is lost; then raise DatabaseAway."""
    lost = asyncio.Event()
    connection.add_termination_listener(lambda *_: lost.set())
    with database_away():
        await connection.add_listener(channel, lambda *arguments: on_notify(arguments[-1]))
        on_connect()
        while not lost.is_set():
            try:
                async with asyncio.timeout(CHECK_INTERVAL.total_seconds()):
                    await lost.wait()
            except TimeoutError:
                await connection.fetchval(CHECK_CONNECTION, timeout=CHECK_TIMEOUT.total_seconds())
    raise DatabaseAway("the connection was closed")
