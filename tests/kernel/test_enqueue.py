"""What is accepted is accepted once, in the caller's transaction or not at all."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from penstock import Done, Item, Penstock
from penstock.base.errors import InvalidInput
from penstock.kernel.enqueue import (
    CHUNK,
    enqueue,
    enqueue_blocking,
    enqueue_many,
)
from penstock.kernel.errors import KeyConflict, UnknownLane
from penstock.kernel.inspect import balance, find_item, read_item
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.payload import Money
from penstock.kernel.retain import open_days, retain
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import DAY, NOON, SECOND, attempt_once, ids, put, state_of, take, try_claim


async def accepted(db: Connection) -> int:
    return (await balance(db)).accepted


# ------------------------------------------------------------------------------------- once


@pytest.mark.covers("A38", "E62")
async def test_the_same_key_again_returns_the_first_item(db: Connection, lane: Lane) -> None:
    first = await enqueue(db, lane.name, NewItem(payload={"n": 1}, key="k"))

    again = await enqueue(db, lane.name, NewItem(payload={"n": 1}, key="k"))

    assert (first.is_new, again.is_new) == (True, False)
    assert again.id == first.id
    assert await accepted(db) == 1


@pytest.mark.covers("E68")
async def test_a_key_is_taken_for_ever(db: Connection, lane: Lane) -> None:
    """The same instruction must not be paid again after it was claimed, done, and forgotten."""
    first = await put(db, lane, 1, key="k")
    await attempt_once(db, lane, Done())
    assert await put(db, lane, 1, key="k") == first

    # Enough company that retention may drop the day, long after everybody's retention.
    created = (await read_item(db, first)).created_at  # pyright: ignore[reportOptionalMemberAccess]
    later = max(created, datetime.now(UTC)) + 400 * DAY
    await open_days(db, now=later)
    assert (await retain(db, now=later)).dropped
    assert await read_item(db, first) is None

    again = await enqueue(db, lane.name, NewItem(payload=1, key="k"))

    assert (again.id, again.is_new) == (first, False)


async def test_key_order_and_spaces_are_no_part_of_a_payload(db: Connection, lane: Lane) -> None:
    """Two services write the same JSON differently; that is not a conflict."""
    query = "SELECT penstock.enqueue($1, $2, 'k')"
    first = await db.fetchval(query, lane.name, '{"a": 1, "b": [1, 2]}')

    again = await db.fetchval(query, lane.name, '{  "b":[1,2],"a":1 }')

    assert again == first


@pytest.mark.covers("A95", "E71")
async def test_a_key_with_another_payload_is_refused_with_both_hashes(
    db: Connection, lane: Lane
) -> None:
    first = await put(db, lane, {"amount": "1"}, key="k")

    with pytest.raises(KeyConflict) as refused:
        await put(db, lane, {"amount": "2"}, key="k")

    assert refused.value.item_id == first
    assert (refused.value.lane, refused.value.key) == (lane.name, "k")
    assert len({refused.value.stored_hash, refused.value.given_hash}) == 2
    assert await accepted(db) == 1


async def test_a_key_sent_again_with_another_time_stays_as_it_is(
    db: Connection, lane: Lane
) -> None:
    first = await put(db, lane, 1, key="k", due_at=NOON)

    again = await put(db, lane, 1, key="k", due_at=NOON + DAY)

    assert again == first
    assert ids(await try_claim(db, lane)) == [first]


async def test_lanes_do_not_share_their_keys(db: Connection, lane: Lane) -> None:
    other = await create_lane(db, "other", who="test")

    first = await put(db, lane, 1, key="k")

    assert await put(db, other, 2, key="k") != first


async def test_items_without_a_key_are_all_new(db: Connection, lane: Lane) -> None:
    assert await put(db, lane, 1) != await put(db, lane, 1)


async def test_an_item_is_found_by_its_key(db: Connection, lane: Lane) -> None:
    first = await put(db, lane, {"n": 1}, key="k")

    found = await find_item(db, lane.name, "k")

    assert (found.id, found.state, found.attempts) == (first, "scheduled", 0)
    assert json.loads(found.payload or "") == {"n": 1}


# -------------------------------------------------------------------- the caller's transaction


def url(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql:", f"postgresql+{driver}:", 1)


async def with_asyncpg(dsn: str, lane: str, *, commits: bool) -> None:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    await enqueue(connection, lane, NewItem(payload=1, key="k"))
    await (transaction.commit() if commits else transaction.rollback())
    await connection.close()


async def with_psycopg(dsn: str, lane: str, *, commits: bool) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await enqueue(connection, lane, NewItem(payload=1, key="k"))
        await (connection.commit() if commits else connection.rollback())


async def with_blocking_psycopg(dsn: str, lane: str, *, commits: bool) -> None:
    with psycopg.connect(dsn) as connection:
        enqueue_blocking(connection, lane, NewItem(payload=1, key="k"))
        (connection.commit if commits else connection.rollback)()


async def with_sqlalchemy(dsn: str, lane: str, *, commits: bool) -> None:
    engine = create_async_engine(url(dsn, "asyncpg"))
    async with engine.connect() as connection:
        await enqueue(connection, lane, NewItem(payload=1, key="k", due_at=NOON))
        await (connection.commit() if commits else connection.rollback())
    await engine.dispose()


async def with_blocking_sqlalchemy(dsn: str, lane: str, *, commits: bool) -> None:
    engine = create_engine(url(dsn, "psycopg"))
    with engine.connect() as connection:
        enqueue_blocking(connection, lane, NewItem(payload=1, key="k", due_at=NOON))
        (connection.commit if commits else connection.rollback)()
    engine.dispose()


EnqueueThrough = Callable[..., Awaitable[None]]
each_driver = pytest.mark.parametrize(
    "enqueue_through",
    [with_asyncpg, with_psycopg, with_blocking_psycopg, with_sqlalchemy, with_blocking_sqlalchemy],
)


@each_driver
async def test_a_commit_accepts_and_a_rollback_leaves_nothing(
    db: Connection, *, dsn: str, lane: Lane, enqueue_through: EnqueueThrough
) -> None:
    """The outbox promise: the item and the caller's own rows share one fate, on any driver."""
    await enqueue_through(dsn, lane.name, commits=False)
    assert await accepted(db) == 0
    assert ids(await try_claim(db, lane)) == []

    await enqueue_through(dsn, lane.name, commits=True)

    assert len((await take(db, lane)).items) == 1


@pytest.fixture
async def strangers(dsn: str) -> AsyncGenerator[list[Any]]:
    """Connections of every driver that awaits."""
    engine = create_async_engine(url(dsn, "asyncpg"))
    through_asyncpg = await asyncpg.connect(dsn)
    through_psycopg = await psycopg.AsyncConnection.connect(dsn)
    async with through_psycopg, engine.connect() as through_sqlalchemy:
        yield [through_asyncpg, through_psycopg, through_sqlalchemy]
    await through_asyncpg.close()
    await engine.dispose()


async def test_every_driver_raises_the_same_errors(
    db: Connection, lane: Lane, strangers: list[Any]
) -> None:
    """A caller catches KeyConflict, whichever library carried it."""
    await set_lane(db, lane.name, who="test", payload_bytes_max=100)
    first = await put(db, lane, 1, key="k")

    for connection in strangers:
        rollback = getattr(connection, "rollback", None)
        for item, error in (
            (NewItem(payload=2, key="k"), KeyConflict),
            (NewItem(payload="x" * 200), InvalidInput),
        ):
            with pytest.raises(error) as refused:
                await enqueue(connection, lane.name, item)
            if isinstance(refused.value, KeyConflict):
                assert refused.value.item_id == first
            if rollback is not None:
                await rollback()
        with pytest.raises(UnknownLane):
            await enqueue(connection, "nowhere", NewItem(payload=1))
        if rollback is not None:
            await rollback()


class OwnConnection(asyncpg.Connection):
    """What applications with a custom connection class have."""


async def test_a_connection_of_a_derived_class_is_recognised(
    db: Connection, dsn: str, lane: Lane
) -> None:
    connection = await asyncpg.connect(dsn, connection_class=OwnConnection)

    await enqueue(connection, lane.name, NewItem(payload=1))
    await connection.close()

    assert await accepted(db) == 1


async def test_a_connection_of_an_unknown_driver_is_refused(lane: Lane) -> None:
    with pytest.raises(InvalidInput, match="connection"):
        await enqueue(object(), lane.name, NewItem(payload=1))
    with pytest.raises(InvalidInput, match="connection"):
        enqueue_blocking(object(), lane.name, NewItem(payload=1))


async def test_plain_sql_enqueues_in_its_own_transaction(
    db: Connection, pool: Pool, lane: Lane
) -> None:
    """Any language with a driver can produce; named arguments are the interface."""
    async with pool.acquire() as producer:
        transaction = producer.transaction()
        await transaction.start()
        item_id = await producer.fetchval(
            "SELECT penstock.enqueue('mail', '{}', key => 'k', due_at => $1, not_after => $2)",
            NOON,
            NOON + DAY,
        )
        assert ids(await try_claim(db, lane)) == []
        await transaction.commit()

    (claimed,) = (await take(db, lane)).items

    assert (claimed.id, claimed.key, claimed.not_after) == (item_id, "k", NOON + DAY)


async def test_a_refused_enqueue_costs_a_savepoint_and_not_the_transaction(
    db: Connection, lane: Lane
) -> None:
    """A caller may answer a conflict and go on with its own work."""
    await put(db, lane, 1, key="k")

    async with db.transaction():
        with pytest.raises(KeyConflict):
            async with db.transaction():
                await put(db, lane, 2, key="k")
        kept = await put(db, lane, 3, key="other")

    assert await state_of(db, kept) == "scheduled"


async def test_blocking_code_can_enqueue(dsn: str, db: Connection, lane: Lane) -> None:
    app = Penstock(dsn)

    first = app.enqueue_blocking(lane.name, {"n": 1}, key="k")
    again = app.enqueue_blocking(lane.name, {"n": 1}, key="k")
    await app.close()

    assert (first.id, first.is_new, again.is_new) == (again.id, True, False)
    assert await accepted(db) == 1


async def test_a_blocking_enqueue_joins_the_transaction_it_is_given(
    dsn: str, db: Connection, lane: Lane
) -> None:
    app = Penstock(dsn)
    engine = create_engine(url(dsn, "psycopg"))

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders AS SELECT 1 AS id"))
        app.enqueue_blocking(lane.name, 1, connection=connection)
    engine.dispose()

    assert await accepted(db) == 1


# ---------------------------------------------------------------------------------- many at once


async def test_many_items_are_accepted_in_their_order(db: Connection, lane: Lane) -> None:
    items = [NewItem(payload=n, key=str(n)) for n in range(CHUNK + 3)]

    answers = await enqueue_many(db, lane.name, items, at=NOON)

    assert [each.id for each in answers] == sorted(each.id for each in answers)
    assert all(each.is_new for each in answers)
    lease = await take(db, lane, limit=5)
    assert [json.loads(claimed.payload) for claimed in lease.items] == [0, 1, 2, 3, 4]


async def test_one_bad_item_among_many_leaves_nothing(db: Connection, lane: Lane) -> None:
    """A caller could not safely repeat a batch that was accepted in part."""
    good = [NewItem(payload=n, key=str(n)) for n in range(CHUNK)]

    with pytest.raises(InvalidInput) as refused:
        await enqueue_many(db, lane.name, [*good, NewItem(payload=1), NewItem(payload=1, key="")])

    assert refused.value.field == f"items[{CHUNK + 1}].key"
    assert await accepted(db) == 0


async def test_a_conflict_among_many_leaves_nothing(db: Connection, lane: Lane) -> None:
    await put(db, lane, 1, key="k")

    with pytest.raises(KeyConflict):
        await enqueue_many(
            db, lane.name, [NewItem(payload=1, key="new"), NewItem(payload=2, key="k")]
        )

    assert await accepted(db) == 1


async def test_a_key_that_comes_twice_in_one_batch_is_one_item(db: Connection, lane: Lane) -> None:
    items = [
        NewItem(payload=1, key="k", due_at=NOON),
        NewItem(payload=2, key="other"),
        NewItem(payload=1, key="k", due_at=NOON + DAY),
    ]

    first, _, again = await enqueue_many(db, lane.name, items)

    assert (first.id, first.is_new, again.is_new) == (again.id, True, False)
    assert first.id in ids(await try_claim(db, lane))


async def test_a_key_with_two_payloads_in_one_batch_is_a_conflict(
    db: Connection, lane: Lane
) -> None:
    with pytest.raises(KeyConflict):
        await enqueue_many(
            db, lane.name, [NewItem(payload=1, key="k"), NewItem(payload=2, key="k")]
        )

    assert await accepted(db) == 0


async def test_many_items_join_the_callers_transaction(db: Connection, lane: Lane) -> None:
    transaction = db.transaction()
    await transaction.start()
    await enqueue_many(db, lane.name, [NewItem(payload=1)])
    await enqueue_many(db, lane.name, [NewItem(payload=2)])

    await transaction.rollback()

    assert await accepted(db) == 0


async def test_an_empty_batch_is_accepted(db: Connection, lane: Lane) -> None:
    assert await enqueue_many(db, lane.name, []) == []


# ------------------------------------------------------------------------------------- bad input


class Payment(msgspec.Struct):
    amount: Money
    currency: str = "EUR"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, tuple[NewItem, str]] = {
    "key too long": (NewItem(payload=1, key="k" * 256), "key"),
    "key empty": (NewItem(payload=1, key=""), "key"),
    "key with NUL": (NewItem(payload=1, key="a\x00b"), "key"),
    "key with a lone surrogate": (NewItem(payload=1, key="\ud800"), "key"),
    "key no text": (NewItem(payload=1, key=7), "key"),  # pyright: ignore[reportArgumentType]
    "order key too long": (NewItem(payload=1, order_key="k" * 256), "order_key"),
    "payload with NUL": (NewItem(payload={"a": "x\x00"}), "payload"),
    "payload with a lone surrogate": (NewItem(payload="\ud800"), "payload"),
    "payload too deep": (NewItem(payload=nested(65)), "payload"),
    "payload far too deep": (NewItem(payload=nested(100_000)), "payload"),
    "payload no JSON": (NewItem(payload=object()), "payload"),
    "payload broken JSON": (NewItem(payload=msgspec.Raw(b"{")), "payload"),
    "payload not a number": (NewItem(payload={"a": [float("nan")]}), "payload.a.0"),
    "payload infinite": (NewItem(payload=float("inf")), "payload"),
    "payload over the limit": (NewItem(payload="x" * 262_144), "payload"),
    "due without a zone": (NewItem(payload=1, due_at=datetime(2030, 1, 1)), "due_at"),  # noqa: DTZ001
    "due in the year 9999": (NewItem(payload=1, due_at=datetime(9999, 1, 1, tzinfo=UTC)), "due_at"),
    "due in the year 1": (NewItem(payload=1, due_at=datetime(1, 1, 1, tzinfo=UTC)), "due_at"),
    "due as text": (NewItem(payload=1, due_at="2030-01-01"), "due_at"),  # pyright: ignore[reportArgumentType]
    "deadline before due": (
        NewItem(payload=1, due_at=NOON, not_after=NOON - SECOND), "not_after"),
    "deadline in the past": (
        NewItem(payload=1, not_after=datetime(2001, 1, 1, tzinfo=UTC)), "not_after"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
async def test_bad_input_is_refused_by_name_and_nothing_is_written(
    shared: Connection, shared_lane: Lane, case: str
) -> None:
    item, field = WRONG[case]

    with pytest.raises(InvalidInput) as refused:
        await enqueue(shared, shared_lane.name, item)
    with pytest.raises(InvalidInput) as refused_among_many:
        await enqueue_many(shared, shared_lane.name, [item])

    assert refused.value.field == field
    assert refused_among_many.value.field in {field, f"items[0].{field}"}
    assert await accepted(shared) == 0


async def test_an_unknown_lane_is_refused_by_name(db: Connection) -> None:
    for name in ("nowhere", "no\x00where", "", "x" * 1_000_000):
        with pytest.raises(UnknownLane):
            await enqueue(db, name, NewItem(payload=1))


@pytest.mark.parametrize("amount", [1.5, True, "ten", "NaN", "Infinity", None, [1]])
async def test_money_is_never_a_float(
    shared: Connection, shared_lane: Lane, amount: object
) -> None:
    """A float has lost cents before anybody could look at it."""
    with pytest.raises(InvalidInput) as refused:
        await enqueue(
            shared, shared_lane.name, NewItem(payload={"amount": amount}), payload_type=Payment
        )

    assert refused.value.field == "payload.amount"
    assert await accepted(shared) == 0


async def test_money_travels_exactly(db: Connection, lane: Lane) -> None:
    await enqueue(
        db, lane.name, NewItem(payload=Payment(Money("0.10"))), payload_type=Payment, at=NOON
    )

    (claimed,) = (await take(db, lane)).items

    assert json.loads(claimed.payload) == {"amount": "0.10", "currency": "EUR"}


@pytest.mark.parametrize(
    "payload",
    [None, "", "\\u0000", '{"nul": "\\u0000"}', {"": 0}, nested(64), "[" * 500, 2**63, 0.1],
    ids=lambda payload: str(payload)[:12],
)
async def test_unusual_payloads_come_back_as_they_went_in(
    db: Connection, lane: Lane, payload: object
) -> None:
    await put(db, lane, payload)

    (claimed,) = (await take(db, lane)).items

    assert json.loads(claimed.payload) == payload


async def test_a_payload_is_measured_in_bytes_against_the_lanes_own_limit(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", payload_bytes_max=10)
    await put(db, lane, "x" * 8)

    with pytest.raises(InvalidInput, match="12 bytes is over the limit of 10"):
        await put(db, lane, "é" * 5)


async def test_an_app_checks_payloads_against_its_handlers_type(dsn: str, db: Connection) -> None:
    """A payload that the handler could not decode is refused while the caller can correct it."""
    app = Penstock(dsn)

    @app.handler("pay")
    async def pay(item: Item[Payment]) -> Done:
        return Done(str(item.payload.amount))

    async with app:
        with pytest.raises(InvalidInput, match=r"payload\.amount"):
            await app.enqueue("pay", {"amount": 1.0})
        with pytest.raises(InvalidInput, match=r"payload\.amount"):
            await app.enqueue_many("pay", [NewItem(payload={"amount": 1.0})])
        await app.enqueue("pay", Payment(Money("1")), due_at=NOON + timedelta(1), key="k")
        async with app.pool.acquire() as connection, connection.transaction():
            await app.enqueue("pay", Payment(Money("2")), connection=connection)
            await app.enqueue_many(
                "pay", [NewItem(payload=Payment(Money("3")))], connection=connection
            )

    assert await accepted(db) == 3
