"""Our queue behind the bench's verbs: one lane, one worker, the public API."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from bench.peers.protocol import Handle, Mode, Place, payload
from penstock import Item, NewItem, Penstock
from penstock.base import log
from penstock.kernel.lane import read_lane, set_lane
from penstock.postgres.pool import Connection, connect

LANE = "bench"
LIMIT_KEY = "tenant"

INSERT_FINISHED = """
WITH body AS (
    INSERT INTO penstock.item (id, due_at, created_at, lane_id, payload)
    SELECT nextval('penstock.item_id'), now(), now(), $1,
        jsonb_build_object('n', number, 'pad', repeat('x', 180))
    FROM generate_series($2::bigint, $2::bigint + $3 - 1) AS number
    RETURNING id
)
INSERT INTO penstock.attempt
    (item_id, token, claimed_at, settled_at, lane_id, duration_ms, attempt, outcome)
SELECT id, 0, now(), now(), $1, 0, 1, 'done' FROM body
"""

IS_SETTLED = """
SELECT NOT EXISTS (SELECT FROM penstock.ready WHERE due_at <= now())
    AND NOT EXISTS (SELECT FROM penstock.parked)
    AND NOT EXISTS (SELECT FROM penstock.lease)
"""


class Lane:
    """The verbs of `bench.ours.Ours` over a Penstock with one handler."""

    chunk = 50_000

    async def setup(self, place: Place, *, install: bool) -> None:
        """Open the app, which migrates anyway; its pool works, another connection enqueues."""
        del install
        log.configure("warning")
        self._handle: Handle | None = None
        self._app = Penstock(place.dsn)
        self._app.handler(LANE)(self._run)
        await self._app.open()
        self._producer: Connection = await connect(place.dsn)

    async def _run(self, item: Item[dict[str, Any]]) -> None:
        assert self._handle is not None
        await self._handle(item.payload["n"])

    async def insert(self, first: int, count: int, *, keyed: bool) -> None:
        """Insert with `enqueue_many`, which copies."""
        numbers = range(first, first + count)
        await self._app.enqueue_many(
            LANE,
            [NewItem(payload=payload(n), key=f"key-{n}" if keyed else None) for n in numbers],
        )

    async def submit(self, number: int) -> float:
        """Enqueue one inside its own transaction."""
        transaction = self._producer.transaction()
        await transaction.start()
        await self._app.enqueue(LANE, payload(number), connection=self._producer)
        committed_at = time.perf_counter()
        await transaction.commit()
        return committed_at

    async def work(self, handle: Handle, *, stop: asyncio.Event, mode: Mode) -> None:
        """Run one worker with the lane's default policy, whatever the mode."""
        del mode
        self._handle = handle
        await self._app.run_worker(stop)

    async def is_settled(self) -> bool:
        """Nothing due, nothing parked, nothing leased."""
        return bool(await self._producer.fetchval(IS_SETTLED))

    async def insert_future(self, first: int, count: int) -> None:
        """Insert items that are due in a year."""
        due_at = await self._producer.fetchval("SELECT now() + interval '1 year'")
        numbers = range(first, first + count)
        await self._app.enqueue_many(
            LANE, [NewItem(payload=payload(n), due_at=due_at) for n in numbers]
        )

    async def insert_finished(self, first: int, count: int) -> None:
        """Insert bodies and their attempts."""
        lane = await read_lane(self._producer, LANE)
        await self._producer.execute(INSERT_FINISHED, lane.lane_id, first, count)

    async def insert_ordered(self, first: int, count: int, *, keys: int) -> None:
        """Order the lane, and insert items with order keys."""
        lane = await read_lane(self._producer, LANE)
        if lane.ordering == "none":
            await set_lane(self._producer, LANE, who="bench", ordering="per_key")
        numbers = range(first, first + count)
        await self._app.enqueue_many(
            LANE, [NewItem(payload=payload(n), order_key=str(n % keys)) for n in numbers]
        )

    async def insert_limited(self, first: int, keys: list[int], *, due_ats: list[float]) -> None:
        """Insert one item for each of the limit keys, due at these seconds since 1970."""
        items = [
            NewItem(
                payload=payload(number),
                due_at=datetime.fromtimestamp(due_at, UTC),
                limit_keys={LIMIT_KEY: str(key)},
            )
            for number, (key, due_at) in enumerate(zip(keys, due_ats, strict=True), first)
        ]
        await self._app.enqueue_many(LANE, items)

    async def limit_keys(self, per_second: float) -> None:
        """Give each limit key of the lane a rate."""
        limits = {LIMIT_KEY: {"rate": per_second}}
        await set_lane(self._producer, LANE, who="bench", key_limits=limits)

    async def limit_rate(self, per_second: int, *, burst: int) -> None:
        """Give the lane a rate limit."""
        await set_lane(self._producer, LANE, who="bench", rate=float(per_second), burst=burst)
