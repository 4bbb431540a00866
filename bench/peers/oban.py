"""Oban for Python: one queue with a limit of LIMIT, its default producer and notifier.

Settings: the limit is also the size of a fetch; of 50 to 1000, 500 was best. It acknowledges job by
job inside one transaction per fetch. The open-source package has no unique jobs, so its bulk
enqueue carries no key.
"""

import asyncio

import psycopg
from oban import Oban, worker
from oban.job import Job
from oban.schema import install as install_schema

from bench.peers.protocol import Handle, Mode, Place, payload, serve, time

LIMIT = 500
_current: list[Handle] = []


@worker(queue="default")
class Noop:
    """Oban finds workers by class path, so the handler is reached through the module."""

    async def process(self, _job: Job) -> None:
        """Hand over to whoever is measuring."""
        await _current[-1](0)


class ObanQueue:
    """The five verbs over one Oban instance."""

    chunk = 1000

    async def setup(self, place: Place, *, install: bool) -> None:
        """Open a pool and a plain connection."""
        self._pool = await Oban.create_pool(place.dsn, min_size=4, max_size=10)
        self._connection = await psycopg.AsyncConnection.connect(place.dsn, autocommit=True)
        self._client = Oban(pool=self._pool, name="client")
        if install:
            await install_schema(self._pool)

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:  # noqa: ARG002 - it has no keys
        """Enqueue many in one transaction: it is one statement per job."""
        async with self._connection.transaction():
            await self._client.enqueue_many(
                [Noop.new(payload(n)) for n in range(first, first + count)],
                conn=self._connection,
            )

    async def submit(self, number: int) -> float:
        """Enqueue one inside its own transaction."""
        async with self._connection.transaction():
            await self._client.enqueue(Noop.new(payload(number)), conn=self._connection)
            return time.perf_counter()  # before the block's end, which sends COMMIT

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:  # noqa: ARG002
        """Run one Oban instance in server mode."""
        _current.append(handle)
        async with Oban(pool=self._pool, name="server", queues={"default": LIMIT}):
            await stop.wait()

    async def is_settled(self) -> bool:
        """Finished jobs stay as completed."""
        cursor = await self._connection.execute(
            "SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN ('available', 'executing'))"
        )
        row = await cursor.fetchone()
        assert row is not None
        return not row[0]


if __name__ == "__main__":
    serve(ObanQueue())
