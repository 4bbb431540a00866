"""Limits per key: an item names its keys, the lane's policy limits each value of them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Done, Item, Snooze
from penstock.base.errors import InvalidInput
from penstock.kernel.enqueue import CREATE_STAGING, enqueue, enqueue_many
from penstock.kernel.heartbeat import report_worker
from penstock.kernel.inspect import balance, list_items, read_attempts, read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.limit_key import KeyLimit, refusal_reason
from penstock.kernel.why import why_item
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    HOUR,
    NOON,
    PATIENCE,
    SECOND,
    attempt_once,
    kind_of,
    outcomes_of,
    put,
    reason_of,
    state_of,
    take,
    worker_of,
)

KEYS = {"tenant": "42", "provider": "stripe"}

# ----------------------------------------------------------------------------------- the keys


async def test_a_claim_returns_the_limit_keys_and_people_see_them(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane, limit_keys=KEYS)
    await put(db, lane)

    limited, plain = (await take(db, lane)).items
    shown = await read_item(db, item_id)

    assert (limited.limit_keys, plain.limit_keys) == (KEYS, None)
    assert shown is not None
    assert shown.limit_keys == KEYS
    assert [each.limit_keys for each in (await list_items(db, lane.name)).items] == [None, KEYS]


@pytest.mark.parametrize("ordering", ["none", "per_key"])
async def test_items_keep_their_limit_keys_by_every_way_in(db: Connection, ordering: str) -> None:
    """One by one, by COPY, and by both functions of SQL."""
    lane = await create_lane(db, f"in-{ordering}".replace("_", "-"), who="test", ordering=ordering)
    await enqueue(db, lane.name, NewItem(payload=1, limit_keys=KEYS), at=NOON)
    many = [NewItem(payload=2, limit_keys=KEYS), NewItem(payload=2)]
    await enqueue_many(db, lane.name, many, at=NOON)
    await db.execute(
        "SELECT penstock.enqueue($1, '3', due_at => $2, limit_keys => $3::jsonb)",
        lane.name,
        NOON,
        '{"tenant": "42", "provider": "stripe"}',
    )
    await db.execute(
        """SELECT penstock.enqueue_many($1, '{4}', '{NULL}', ARRAY[$2::timestamptz], '{NULL}',
            '{NULL}', limit_keys => ARRAY[$3::jsonb])""",
        lane.name,
        NOON,
        '{"tenant": "42", "provider": "stripe"}',
    )

    items = (await take(db, lane)).items

    assert [each.limit_keys for each in items] == [KEYS, KEYS, None, KEYS, KEYS]


async def test_the_staging_table_of_an_older_release_is_accepted(
    db: Connection, lane: Lane
) -> None:
    """Its workers run beside new ones during an upgrade."""
    older = CREATE_STAGING.replace(",\n    limit_keys jsonb", "")
    assert older != CREATE_STAGING
    async with db.transaction():
        await db.execute(older)
        await db.execute("INSERT INTO penstock_staged (index, payload) VALUES (0, '1')")
        await db.fetch("SELECT * FROM penstock.enqueue_staged($1, $2)", lane.name, NOON)

    (item,) = (await take(db, lane)).items

    assert (item.payload, item.limit_keys) == ("1", None)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"Tenant": "42"}, "limit_keys"),
        ({"": "42"}, "limit_keys"),
        ({1: "42"}, "limit_keys"),
        (["tenant"], "limit_keys"),
        ({f"key{n}": "1" for n in range(9)}, "limit_keys"),
        ({"tenant": 42}, "limit_keys.tenant"),
        ({"tenant": None}, "limit_keys.tenant"),
        ({"tenant": ""}, "limit_keys.tenant"),
        ({"tenant": "x" * 256}, "limit_keys.tenant"),
        ({"tenant": "\x00"}, "limit_keys.tenant"),
    ],
)
async def test_wrong_limit_keys_are_refused_by_name(
    shared: Connection, shared_lane: Lane, *, keys: Any, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await put(shared, shared_lane, limit_keys=keys)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "keys", ["[]", '{"Tenant": "42"}', '{"tenant": 42}', '{"tenant": ""}', '{"tenant": {"a": "b"}}']
)
async def test_the_table_refuses_them_too(shared: Connection, shared_lane: Lane, keys: str) -> None:
    """Producers call the SQL function without this package."""
    with pytest.raises(Exception, match="limit_keys_are_short"):
        await shared.execute(
            "SELECT penstock.enqueue($1, '1', limit_keys => $2::jsonb)", shared_lane.name, keys
        )


# ------------------------------------------------------------------------------------- the run


async def limited(db: Connection, lane: Lane, **policy: Any) -> Lane:
    return await set_lane(db, lane.name, who="test", **policy)


async def put_now(
    db: Connection, lane: Lane, tenant: str | None, *, not_after: datetime | None = None
) -> ItemId:
    """Enqueue an item that a worker may run now."""
    keys = None if tenant is None else {"tenant": tenant}
    item = NewItem(payload=tenant, limit_keys=keys, not_after=not_after)
    return (await enqueue(db, lane.name, item)).id


@dataclass(frozen=True, slots=True)
class Run:
    """Runs one worker of a lane until something is so."""

    dsn: str
    pool: Pool

    async def until(
        self,
        is_so: Callable[[], Awaitable[bool]],
        lane: Lane,
        handle: Any,
        *,
        takes_batch: bool = False,
    ) -> None:
        stop = asyncio.Event()
        kind = kind_of(lane, handle, takes_batch=takes_batch)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(worker_of(self.dsn, self.pool, kind).run(stop))
            while not await is_so():
                pass
            stop.set()


@pytest.fixture
def run(dsn: str, pool: Pool) -> Run:
    return Run(dsn, pool)


async def test_an_item_above_the_rate_of_its_key_is_put_off_at_no_cost(
    db: Connection, lane: Lane, run: Run
) -> None:
    """Items of other keys, and those without one, start meanwhile."""
    await limited(db, lane, key_limits={"tenant": {"rate": 0.01}}, max_attempts=1)
    first = await put_now(db, lane, "hot")
    hot = await put_now(db, lane, "hot")
    others = [await put_now(db, lane, "cold"), await put_now(db, lane, None)]
    ran: list[str | None] = []

    async def handle(item: Item[Any]) -> None:
        ran.append(item.payload)

    async def is_settled() -> bool:
        states = [await state_of(db, each) for each in (first, *others)]
        return states == ["done"] * 3 and await state_of(db, hot) == "scheduled"

    await run.until(is_settled, lane, handle)

    assert Counter(ran) == {"hot": 1, "cold": 1, None: 1}
    (attempt,) = await read_attempts(db, hot)
    assert (attempt.outcome, attempt.reason) == ("snooze", "limit key tenant=hot is at its rate")
    assert attempt.retry_at is not None
    assert 90 * SECOND < attempt.retry_at - attempt.settled_at < 101 * SECOND


async def a_turn_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


class Crowd:
    """A handler that counts how many of one key are inside at once."""

    def __init__(self) -> None:
        self.inside: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()
        self.ended = 0

    async def __call__(self, item: Item[Any]) -> None:
        self.inside[item.payload] += 1
        self.most[item.payload] = max(self.most[item.payload], self.inside[item.payload])
        await a_turn_of_the_loop()
        self.inside[item.payload] -= 1
        self.ended += 1

    async def many(self, items: list[Item[Any]]) -> list[Done]:
        for item in items:
            await self(item)
        within = Counter(item.payload for item in items)
        self.most.update({key: max(0, n - self.most[key]) for key, n in within.items()})
        return [Done()] * len(items)


@pytest.mark.parametrize("on_lost", ["retry", "hold"])
@pytest.mark.parametrize("takes_batch", [False, True], ids=["single", "batch"])
async def test_a_concurrency_per_key_holds_and_all_items_run(
    db: Connection, lane: Lane, *, run: Run, on_lost: str, takes_batch: bool
) -> None:
    """In a batch handler and before a start mark too; a refusal costs no attempt."""
    await limited(
        db, lane, key_limits={"tenant": {"concurrency": 1}}, on_lost=on_lost, max_attempts=1
    )
    items = [await put_now(db, lane, tenant) for tenant in ("a", "b", None) for _ in range(6)]
    crowd = Crowd()

    async def is_done() -> bool:
        return (await balance(db)).done == len(items)

    await run.until(is_done, lane, crowd.many if takes_batch else crowd, takes_batch=takes_batch)

    assert crowd.ended == len(items)
    assert (crowd.most["a"], crowd.most["b"]) == (1, 1)
    assert set(await outcomes_of(db, items[5])) <= {"snooze", "done"}


async def test_a_key_that_the_policy_does_not_limit_is_ignored(
    db: Connection, lane: Lane, run: Run
) -> None:
    await limited(db, lane, key_limits={"provider": {"rate": 0.01}})
    items = [await put_now(db, lane, "42") for _ in range(3)]

    async def handle(_: Item[Any]) -> None: ...

    async def is_done() -> bool:
        return [await state_of(db, each) for each in items] == ["done"] * 3

    await run.until(is_done, lane, handle)

    assert [await outcomes_of(db, each) for each in items] == [["done"]] * 3


async def test_an_item_whose_turn_is_after_its_deadline_expires(
    db: Connection, lane: Lane, run: Run
) -> None:
    await limited(db, lane, key_limits={"tenant": {"rate": 0.01}})
    await put_now(db, lane, "42")
    late = await put_now(db, lane, "42", not_after=datetime.now(UTC) + timedelta(seconds=60))

    async def handle(_: Item[Any]) -> None: ...

    async def is_dead() -> bool:
        return await state_of(db, late) == "dead"

    await run.until(is_dead, lane, handle)

    assert await reason_of(db, late) == "expired"


async def test_a_worker_that_stops_returns_the_places_of_its_items(
    db: Connection, lane: Lane, run: Run
) -> None:
    """Else they would be taken until they expire, for all other workers."""
    await limited(db, lane, key_limits={"tenant": {"concurrency": 1}})
    gate = worker_of(run.dsn, run.pool).gate
    started = asyncio.Event()

    async def hang(_: Item[Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    await put_now(db, lane, "42")
    stop = asyncio.Event()
    worker = worker_of(
        run.dsn, run.pool, kind_of(lane, hang), gate=gate, grace=timedelta(milliseconds=1)
    )
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        await started.wait()
        stop.set()

    second = await put_now(db, lane, "42")
    ended = asyncio.Event()

    async def handle(item: Item[Any]) -> None:
        if item.id == second:
            ended.set()

    stop = asyncio.Event()
    other = worker_of(run.dsn, run.pool, kind_of(lane, handle), gate=gate)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(other.run(stop))
        await ended.wait()
        stop.set()


# ------------------------------------------------------------------------------------- reasons


async def test_why_names_the_limit_key_that_an_item_waits_for(db: Connection, lane: Lane) -> None:
    await report_worker(db, "host:7:ab", [lane.name], now=NOON)
    limits = {"tenant": KeyLimit(rate=20), "provider": KeyLimit(rate=100, concurrency=5)}
    await limited(db, lane, key_limits=limits)
    item_id = await put(db, lane, limit_keys=KEYS)
    await attempt_once(db, lane, Snooze(HOUR, refusal_reason("tenant", "42", "rate")))

    (reason,) = await why_item(db, item_id, now=NOON)

    assert reason.code == "limit_key"
    assert reason.sentence == (
        f"item {item_id} waits for its limit key tenant=42 until 2030-01-01 13:00:00 UTC: "
        "lane mail allows it 20 starts a second"
    )
    assert (reason.data["name"], reason.data["value"], reason.data["rate"]) == ("tenant", "42", 20)


async def test_why_names_a_full_limit_key(db: Connection, lane: Lane) -> None:
    await report_worker(db, "host:7:ab", [lane.name], now=NOON)
    await limited(db, lane, key_limits={"provider": {"rate": 100, "concurrency": 5}})
    item_id = await put(db, lane, limit_keys=KEYS)
    await attempt_once(db, lane, Snooze(HOUR, refusal_reason("provider", "stripe", "concurrency")))

    (reason,) = await why_item(db, item_id, now=NOON)

    assert (reason.code, reason.data["limit"]) == ("limit_key", "concurrency")
    assert reason.sentence.endswith("lane mail allows it 5 handlers at once")
