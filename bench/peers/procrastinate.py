"""Procrastinate: one worker, CONCURRENCY jobs at once, jobs deleted when they succeed.

Settings: it fetches and finishes job by job, so concurrency buys little: of 1, 10 and 30, 10
was best.
`delete_jobs="successful"` keeps its table small, which is its faster side.
"""

import asyncio

import procrastinate
import psycopg

from bench.peers.protocol import Handle, Mode, Place, payload, serve, time

CONCURRENCY = 10


class Procrastinate:
    """The five verbs over a Procrastinate app."""

    chunk = 1000

    async def setup(self, place: Place, *, install: bool) -> None:
        """Open the app with a pool large enough for the concurrency."""
        self._handle: Handle | None = None
        connector = procrastinate.PsycopgConnector(conninfo=place.dsn, min_size=4, max_size=12)
        self._app = procrastinate.App(connector=connector)

        @self._app.task(name="noop")
        async def noop(n: int, **_: str) -> None:
            assert self._handle is not None
            await self._handle(n)

        self._task = noop
        await self._app.open_async()
        self._connection = await psycopg.AsyncConnection.connect(place.dsn, autocommit=True)
        if install:
            await self._app.schema_manager.apply_schema_async()

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:
        """Defer a batch; a queueing lock is per deferrer, so a key costs a deferrer per job."""
        numbers = range(first, first + count)
        if not keyed:
            await self._task.batch_defer_async(*(payload(n) for n in numbers))
            return
        jobs = [
            self._task.configure(queueing_lock=f"key-{n}").make_new_job(**payload(n))
            for n in numbers
        ]
        await self._app.job_manager.batch_defer_jobs_async(jobs=jobs)

    async def submit(self, number: int) -> float:
        """Defer one inside its own transaction."""
        async with self._connection.transaction():
            deferrer = self._task.configure(connection=self._connection)
            await deferrer.defer_async(**payload(number))
            return time.perf_counter()  # before the block's end, which sends COMMIT

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:  # noqa: ARG002
        """Run one worker; it is stopped by cancelling it, as its docs say."""
        self._handle = handle
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(
                self._app.run_worker_async(
                    concurrency=CONCURRENCY,
                    delete_jobs="successful",
                    install_signal_handlers=False,
                )
            )
            await stop.wait()
            worker.cancel()

    async def is_settled(self) -> bool:
        """Successful jobs are deleted."""
        cursor = await self._connection.execute(
            "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
        )
        row = await cursor.fetchone()
        assert row is not None
        return not row[0]


if __name__ == "__main__":
    serve(Procrastinate())
