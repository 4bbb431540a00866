"""A process that requests slots and records each one that it was given.

`python -m tests.fault.slot_client DSN RECORD NUMBER`. One write to a file opened for appending is
atomic and remains after a kill; a slot that is not recorded was not acknowledged.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import uvloop

from penstock.domains.slots.assign import Assigned, SlotRequest, assign_many
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, connect, database_away
from tests.fault.waiting import POLL_SECONDS, pause

POOL = "pool"
START = datetime(2030, 1, 1, 12, tzinfo=UTC)  # Also the current time of all callers.
INSTANTS = 5
SHARED_EVENTS = 2_000
BATCH_MAX = 30


def request(event: str) -> SlotRequest:
    """Return the request of an event: the same instant in every process."""
    return SlotRequest(event, START.replace(second=sum(map(ord, event)) % INSTANTS))


def line(assigned: Assigned) -> str:
    """Return the record of a slot."""
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
            # It is unknown whether the last request was booked, so it is repeated.
            await pause(POLL_SECONDS)


async def _ask(db: Connection, wanted: list[SlotRequest]) -> list[Assigned]:
    with database_away():
        return await assign_many(db, POOL, wanted, now=START)


def _batches(number: str) -> Iterator[list[SlotRequest]]:
    """Yield single requests and batches; other processes request some of the same events."""
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
