"""A lane's items are listed by state, order key and time, in pages of bounded cost."""

from typing import Any, get_args

from penstock import Dead, Done, Hold
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import LOOKED_AT_MAX, ItemFilter, ItemState, list_items
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane
from penstock.kernel.operate import cancel
from penstock.postgres.pool import Connection
from tests.kernel.scene import MINUTE, NOON, end, put, take


async def listed(db: Connection, lane: Lane, **only: Any) -> list[ItemId]:
    page = await list_items(db, lane.name, only=ItemFilter(**only))
    assert page.next is None
    return [item.id for item in page.items]


async def test_items_are_listed_by_state(db: Connection, lane: Lane) -> None:
    past = await db.fetchval("SELECT now() - interval '1 hour'")
    done, dead, held, leased, cancelled = [await put(db, lane, n, at=past) for n in range(5)]
    await cancel(db, cancelled, who="test")
    for ending in (Done(), Dead("refused"), Hold("no answer")):
        await end(db, lane, await take(db, lane, limit=1, now=past), ending, now=past)
    await take(db, lane, limit=1, now=past)
    ready, scheduled = await put(db, lane, at=past), await put(db, lane, at=NOON)

    found = {state: await listed(db, lane, state=state) for state in get_args(ItemState)}

    assert found == {
        "scheduled": [scheduled], "ready": [ready], "parked": [], "leased": [leased],
        "held": [held], "dead": [dead], "cancelled": [cancelled], "done": [done],
    }  # fmt: skip


async def test_items_are_listed_by_order_key(db: Connection) -> None:
    lane = await create_lane(db, "rail", who="test", ordering="per_key")
    first, _, third = [await put(db, lane, order_key=key) for key in "aba"]

    assert await listed(db, lane, order_key="a") == [third, first]
    assert await listed(db, lane, order_key="a", state="parked") == [third]
    assert await listed(db, lane, order_key="c") == []


async def test_items_are_listed_by_the_time_of_their_acceptance(db: Connection, lane: Lane) -> None:
    now = await db.fetchval("SELECT now()")
    first, second, third = [await put(db, lane, at=now + n * MINUTE) for n in range(3)]

    assert await listed(db, lane, since=now + MINUTE) == [third, second]
    assert await listed(db, lane, until=now + MINUTE) == [first]
    assert await listed(db, lane, since=now + MINUTE, until=now + 2 * MINUTE) == [second]


async def test_a_page_without_a_match_continues_behind_what_it_looked_at(
    db: Connection, lane: Lane
) -> None:
    """A filter must not make one request walk over a year of items."""
    old = await put(db, lane)
    await cancel(db, old, who="test")
    items = [NewItem(payload=None, due_at=NOON) for _ in range(LOOKED_AT_MAX)]
    await enqueue_many(db, lane.name, items)
    only = ItemFilter(state="cancelled")

    empty = await list_items(db, lane.name, only=only)
    page = await list_items(db, lane.name, only=only, after=empty.next)

    assert empty.items == []
    assert empty.next is not None
    assert [item.id for item in page.items] == [old]
    assert page.next is None
