"""A process to be killed or stopped: it pays, and writes down each call that it makes.

`python -m tests.fault.payout_worker DSN RECORD pay|stop`. With `stop` it stops itself inside each
handler, and asks when it is continued whether its lease is still valid.
"""

import asyncio
import os
import signal
import sys

import uvloop

from penstock import Done, Hold, Item, Outcome, Penstock
from penstock.base.log import configure
from tests.fault.record import write_line
from tests.fault.waiting import pause

LANE = "payouts"
CALL_SECONDS = 0.005


def build(dsn: str, record: int, *, stops: bool) -> Penstock:
    """Return the app with one lane; its policy is the test's."""
    app = Penstock(dsn)

    async def pay(item: Item[int]) -> Outcome:
        write_line(record, item.id, item.token, item.tried)
        await pause(CALL_SECONDS)
        return Done()

    async def stop(item: Item[int]) -> Outcome:
        os.kill(os.getpid(), signal.SIGSTOP)
        is_mine = await item.still_mine()
        write_line(record, item.id, item.token, is_mine)
        return Done() if is_mine else Hold("the lease is over")

    app.handler(LANE, when_unknown=Hold)(stop if stops else pay)
    return app


async def main(dsn: str, path: str, mode: str) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async with build(dsn, record, stops=mode == "stop") as app:
        await app.run_worker(asked_to_stop)


if __name__ == "__main__":
    configure("info")
    uvloop.run(main(*sys.argv[1:]))
