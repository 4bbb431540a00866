"""A worker of the outbox that dies, or stops itself, at one labelled point.

`python -m tests.fault.outbox_worker DSN PORT PROMISE kill|stop LABEL`. PROMISE is what the rail on
the port keeps: `query`, `key` or `nothing`. With the label `never` it runs until SIGTERM.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta

import uvloop

from penstock import Penstock
from penstock.base.log import configure
from penstock.contract import Resources, Runtime
from penstock.domains.outbox.crash_point import CrashPoint
from penstock.domains.outbox.rails.rail import LoadedRail
from tests.domains.outbox.sending.ledger import OneRail, loaded
from tests.domains.outbox.sending.scene import Allowing, build, domain

TIMEOUT = timedelta(seconds=2)
FINAL = timedelta(seconds=1)


def rail_of(port: int, promise: str) -> LoadedRail:
    """Return the rail that keeps this promise."""
    if promise == "query":
        return loaded(port, timeout=TIMEOUT, can_query=True, not_found_is_final_after=FINAL)
    if promise == "key":
        return loaded(port, timeout=TIMEOUT, key_valid_for=timedelta(days=1))
    return loaded(port, timeout=TIMEOUT)


def crash_point_of(how: str, label: str) -> CrashPoint:
    """Return what ends or stops this process at the label, the first time."""
    labels = [label]

    def crash_point(reached: str) -> None:
        if reached in labels:
            labels.clear()
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    return crash_point


async def main(dsn: str, port: str, promise: str, *crash: str) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)

    def make(resources: Resources) -> Runtime:
        runtime, _ = build(
            resources,
            rails=OneRail(rail_of(int(port), promise)),
            control=Allowing(),
            clock=resources.clock,
            events=[],
            crash_point=crash_point_of(*crash),
        )
        return runtime

    async with Penstock(dsn, domains=[domain(make)]) as app:
        await app.run_worker(asked_to_stop)


if __name__ == "__main__":
    configure("info")
    uvloop.run(main(*sys.argv[1:]))
