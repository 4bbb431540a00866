"""A worker process for the fault tests, which records each start.

`python -m tests.fault.worker DSN RECORD`.
"""

import asyncio
import os
import signal
import sys

import uvloop

from penstock import Done, Item, Outcome, Penstock, Retry
from penstock.base.aio import alongside, supervise
from penstock.base.log import configure
from tests.fault.record import write_line
from tests.fault.waiting import pause

SLOW_SECONDS = 0.02


def build(dsn: str, record: int) -> Penstock:
    """Return the app: two lanes with one handler. The payload says how the handler behaves."""
    app = Penstock(dsn)

    async def handle(item: Item[str]) -> Outcome:
        write_line(record, item.id, item.token, item.order_key or "-")
        if item.payload == "slow":
            await pause(SLOW_SECONDS)
        if item.payload == "flaky" and item.attempt == 1:
            return Retry("flaky")
        return Done()

    app.handler("unordered")(handle)
    app.handler("ordered")(handle)
    return app


async def main(dsn: str, path: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = build(dsn, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))

    async def work() -> None:
        await app.run_worker(stop)

    async with app, alongside(app.run_sweeper()):
        await supervise(work, name="worker", log=app.log)


if __name__ == "__main__":
    configure("info")
    uvloop.run(main(*sys.argv[1:]))
