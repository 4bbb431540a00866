"""PgQueuer: batches of BATCH in both directions, asyncpg, uvloop, durable (logged) tables.

Settings: `batch_size` is also the size of PgQueuer's completion buffer; of 100 to 2000, 1000 was
best on 2 cores. The pool driver lets a dequeue and a completion overlap and beat one connection
(15 to 20k/s against 14 to 16k). `max_concurrent_tasks` stays unset, which makes the dequeue query
leave out its worker budget.
"""

import asyncio
from datetime import timedelta

import asyncpg
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.peers.protocol import Handle, Mode, Place, payload_json, serve, time

BATCH = 1000


class PgQueuer:
    """The five verbs over PgQueuer's public classes."""

    chunk = 5000

    async def setup(self, place: Place, *, install: bool) -> None:
        """Open a pool for the worker and a connection that enqueues."""
        self._worker = await asyncpg.create_pool(place.dsn, min_size=4, max_size=8)
        self._producer = await asyncpg.connect(place.dsn)
        self._queries = Queries(AsyncpgDriver(self._producer))
        if install:
            await self._queries.install()

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:
        """Insert with one `enqueue` of lists; the dedupe key is PgQueuer's idempotency key."""
        numbers = range(first, first + count)
        await self._queries.enqueue(
            ["noop"] * count,
            [payload_json(n).encode() for n in numbers],
            [0] * count,
            dedupe_key=[f"key-{n}" for n in numbers] if keyed else None,
        )

    async def submit(self, number: int) -> float:
        """Enqueue one inside its own transaction."""
        transaction = self._producer.transaction()
        await transaction.start()
        await self._queries.enqueue("noop", payload_json(number).encode())
        committed_at = time.perf_counter()
        await transaction.commit()
        return committed_at

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:
        """Run one QueueManager."""
        manager = QueueManager(Queries(AsyncpgPoolDriver(self._worker)))

        @manager.entrypoint("noop")
        async def noop(_job: Job) -> None:
            await handle(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(
                manager.run(
                    batch_size=BATCH if mode == "throughput" else 10,
                    dequeue_timeout=timedelta(seconds=30),
                )
            )
            await stop.wait()
            manager.shutdown.set()

    async def is_settled(self) -> bool:
        """Finished jobs leave the queue table."""
        return not await self._producer.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)")


if __name__ == "__main__":
    serve(PgQueuer())
