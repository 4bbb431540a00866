"""A process to be killed: it asks for slots and writes down each one that it was promised.

`python -m tests.fault.slot_client DSN RECORD NUMBER`. One write to a file opened for appending is
atomic and outlives the process; what is not written was not acknowledged to anybody.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import uvloop

from penstock.base.errors import DatabaseAway
from penstock.domains.slots.assign import Assigned, SlotRequest, assign_many
from penstock.postgres.pool import Connection, connect, database_away
from tests.fault.waiting import LOOK, moment

POOL = "pool"
START = datetime(2030, 1, 1, 12, tzinfo=UTC)  # Also the present of all callers.
INSTANTS = 5
SHARED_EVENTS = 2_000
BATCH_MAX = 30


def request(event: str) -> SlotRequest:
    """An event always asks for the same instant, whichever process speaks for it."""
    return SlotRequest(event, START.replace(second=sum(map(ord, event)) % INSTANTS))


def line(assigned: Assigned) -> str:
    """Write down all that was promised."""
    slot = assigned.slot
    assert slot is not None, assigned.outcome
    instants = f"{slot.scheduled_at.isoformat()} {slot.window_at.isoformat()}"
    return f"{slot.event_id} {instants} {slot.position} {slot.config_id}\n"


async def main(dsn: str, path: str, number: str) -> None:
    record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    batches = _batches(number)
    wanted = next(batches)
    while True:
        try:
            db = await connect(dsn)
            while True:
                answers = await _ask(db, wanted)
                os.write(record, "".join(map(line, answers)).encode())
                wanted = next(batches)
        except DatabaseAway:
            # Whether the last request was booked is not known, so it is made again.
            await moment(LOOK)


async def _ask(db: Connection, wanted: list[SlotRequest]) -> list[Assigned]:
    with database_away():
        return await assign_many(db, POOL, wanted, now=START)


def _batches(number: str) -> Iterator[list[SlotRequest]]:
    """Yield singles and batches; some events are those of the other processes too."""
    chance = random.Random(number)
    count = 0
    while True:
        own = [f"own-{number}-{count + each}" for each in range(chance.randint(1, BATCH_MAX))]
        count += len(own)
        shared = f"shared-{chance.randrange(SHARED_EVENTS)}"
        yield [request(own[0])] if chance.random() < 0.5 else [*map(request, own), request(shared)]


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
