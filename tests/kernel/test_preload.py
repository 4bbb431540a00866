"""What handlers need is brought for all items that were claimed together, or the items go back."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock import Item
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import balance, read_attempts
from penstock.kernel.item import Hold, NewItem, SettledAttempt
from penstock.kernel.kind import Kind
from penstock.kernel.lane import Lane
from penstock.kernel.sweep import rescue
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import HOUR, PATIENCE, outcomes_of, put, reason_of, take, worker_of

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)  # Due by the real clock.


async def test_handlers_get_what_was_preloaded_for_the_whole_claim(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """One query serves hundreds of attempts, whatever their order."""
    asked: list[Sequence[int]] = []
    got: dict[int, str] = {}
    has_all = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> list[str]:
        asked.append([item.payload for item in items])
        return [f"preloaded {item.payload}" for item in items]

    async def handle(item: Item[Any]) -> None:
        got[len(got)] = item.payload
        if len(got) == 100:
            has_all.set()

    await enqueue_many(db, lane.name, [NewItem(payload=number) for number in range(100)])
    kind = Kind(lane=lane.name, payload_type=int, handle=handle, preload=preload)
    await run_until(worker_of(dsn, pool, kind), has_all)

    assert sorted(got.values()) == sorted(f"preloaded {number}" for number in range(100))
    assert len(asked) < 10


async def test_items_are_returned_unstarted_when_the_preload_fails(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """The database may be lost just then; the items must not wait for the end of their lease."""
    tries = 0
    handled = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> Sequence[int]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise DatabaseAway("gone in this moment")
        return [item.payload for item in items]

    async def handle(_: Item[int]) -> None:
        handled.set()

    (accepted,) = await enqueue_many(db, lane.name, [NewItem(payload=1)])
    kind = Kind(lane=lane.name, payload_type=int, handle=handle, preload=preload)
    await run_until(worker_of(dsn, pool, kind), handled)

    assert tries > 1
    assert await outcomes_of(db, accepted.id) == ["done"]
    assert (await balance(db)).is_even


async def test_an_item_that_cannot_be_preloaded_fails_alone(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Its attempts are counted, so that it dies in the end; what runs is not cancelled."""
    got: set[int] = set()
    handled = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> Sequence[int]:
        if any(item.payload == 13 for item in items):
            raise ValueError("unlucky")
        return [item.payload for item in items]

    async def handle(item: Item[int]) -> None:
        got.add(item.payload)
        if len(got) == 19:
            handled.set()

    accepted = await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(20)])
    kind = Kind(lane=lane.name, payload_type=int, handle=handle, preload=preload)
    await run_until(worker_of(dsn, pool, kind), handled)

    assert got == set(range(20)) - {13}
    first, *_ = await read_attempts(db, accepted[13].id)
    assert (first.outcome, (first.reason or "")[:13]) == ("retry", "ValueError in")


async def test_an_item_of_a_dead_worker_that_cannot_be_preloaded_is_unknown(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Nobody has looked at what the lost attempt did: the item must not be retried until dead."""
    held = asyncio.Event()

    async def preload(_: Connection, _items: Sequence[Item[int]]) -> Sequence[int]:
        raise ValueError("unlucky")

    async def handle(_: Item[int]) -> None:
        raise AssertionError("it was not preloaded")

    async def record(_: Connection, _token: int, attempts: Sequence[SettledAttempt]) -> None:
        assert [each.outcome for each in attempts] == ["hold"]
        held.set()

    item_id = await put(db, lane, 1, at=LONG_AGO)
    await take(db, lane, now=LONG_AGO)
    await rescue(db, now=LONG_AGO + HOUR)
    kind = Kind(
        lane=lane.name, payload_type=int, handle=handle, preload=preload, record=record,
        when_unknown=Hold,
    )  # fmt: skip
    await run_until(worker_of(dsn, pool, kind), held)

    assert await outcomes_of(db, item_id) == ["lost", "hold"]


async def test_a_preload_that_returns_too_few_payloads_is_repeated_for_each_item(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    got: list[int] = []
    handled = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> Sequence[int]:
        return [item.payload for item in items][:1]

    async def handle_many(items: list[Item[int]]) -> list[None]:
        got.extend(item.payload for item in items)
        if len(got) == 3:
            handled.set()
        return [None] * len(items)

    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(3)])
    kind = Kind(lane=lane.name, payload_type=int, handle_many=handle_many, preload=preload)
    await run_until(worker_of(dsn, pool, kind), handled)

    assert sorted(got) == [0, 1, 2]


async def test_a_payload_of_another_type_is_dead_and_the_others_are_preloaded(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    got: list[int] = []
    handled = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> Sequence[int]:
        return [item.payload * 2 for item in items]

    async def handle(item: Item[int]) -> None:
        got.append(item.payload)
        handled.set()

    flawed, _ = await enqueue_many(db, lane.name, [NewItem(payload="text"), NewItem(payload=21)])
    kind = Kind(lane=lane.name, payload_type=int, handle=handle, preload=preload)
    await run_until(worker_of(dsn, pool, kind), handled)

    assert got == [42]
    assert await outcomes_of(db, flawed.id) == ["dead"]
    assert "payload" in str(await reason_of(db, flawed.id))


async def run_until(worker: Any, handled: asyncio.Event) -> None:
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        await handled.wait()
        stop.set()
