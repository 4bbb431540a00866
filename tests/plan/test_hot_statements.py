"""Hot statements touch what they need and no more, with millions of other rows around.

Judged by their plans and by the pages that they touch, never by time: with statistics of when the
tables were empty and with fresh ones, with custom plans and with generic ones.
"""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.kernel import (
    enqueue,
    heartbeat,
    inspect,
    operate,
    promote,
    replay,
    retain,
    settle,
    sweep,
    why,
    worker,
)
from penstock.kernel.claim import CLAIM, Cursor, Lease, claim
from penstock.kernel.item import DONE, Dead, Ending, Hold, ItemId, NewItem, Retry
from penstock.kernel.lane import read_lane
from penstock.kernel.settle import Ended
from tests.plan.explain import Explainer

BATCH = 500
BIG, LINE = 1, 2  # The lanes' ids.
# Writing a row touches its page and three or four of each index; reading one by its id four.
PAGES_PER_ROW = 30
PAGES_ONCE = 100  # For the few rows of lane, gate and lease, and what was rolled back of them.
HOUR = timedelta(hours=1)


async def take(explainer: Explainer, lane_id: int, *, limit: int = BATCH) -> Lease:
    found = await claim(
        explainer.connection(), lane_id, Cursor(), limit=limit, worker="plan", now=None
    )
    assert isinstance(found, Lease)
    assert len(found.items) == limit
    return found


def assert_bounded(explainer: Explainer, query: str, *, rows: int) -> None:
    """The statement walked over no big table and touched pages in proportion to its rows."""
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_ROW * rows, explained.buffers


@pytest.mark.parametrize("lane_id", [BIG, LINE], ids=["unordered", "ordered"])
async def test_a_claim_walks_the_order_of_its_index(explainer: Explainer, lane_id: int) -> None:
    await take(explainer, lane_id)

    assert_bounded(explainer, CLAIM, rows=BATCH)
    explained = explainer.of(CLAIM)
    assert "ready_pkey" in explained.indexes()
    assert len(explained.partitions_read("item")) == 1, "bodies are looked up in their own day"


async def test_a_claim_of_nothing_costs_next_to_nothing(explainer: Explainer) -> None:
    """A worker whose cursor is at the end of what is due asks once a second."""
    cursor = Cursor(position=(datetime.now(UTC) + HOUR, 0), rewind_at=float("inf"))

    found = await claim(explainer.connection(), BIG, cursor, limit=BATCH, worker="plan")

    assert isinstance(found, float)
    assert_bounded(explainer, CLAIM, rows=0)


@pytest.mark.parametrize("ending", [DONE, Retry("again", after=HOUR)], ids=["done", "retry"])
@pytest.mark.parametrize("lane_id", [BIG, LINE], ids=["unordered", "ordered"])
async def test_a_settle_only_adds(explainer: Explainer, lane_id: int, ending: Ending) -> None:
    lane = await read_lane(explainer.db, "big" if lane_id == BIG else "line")
    lease = await take(explainer, lane_id)
    ended = [Ended(claimed, ending, 1) for claimed in lease.items]

    assert await settle.settle(explainer.connection(), lane, lease, ended=ended, closes=True)

    assert_bounded(explainer, settle.SETTLE, rows=BATCH)
    if lane_id == LINE and ending is DONE:
        assert_bounded(explainer, promote.PROMOTE, rows=BATCH)


async def test_a_partial_settle_leaves_the_rest_alone(explainer: Explainer) -> None:
    lane = await read_lane(explainer.db, "big")
    lease = await take(explainer, BIG)
    ended = [Ended(claimed, DONE, 1) for claimed in lease.items[:10]]

    assert await settle.settle(explainer.connection(), lane, lease, ended=ended, closes=False)

    assert_bounded(explainer, settle.SETTLE, rows=10)


async def test_a_late_settle_looks_up_its_own_items_only(explainer: Explainer) -> None:
    lane = await read_lane(explainer.db, "big")
    lease = await take(explainer, BIG)
    await explainer.db.execute("DELETE FROM penstock.lease")
    ended = [Ended(claimed, DONE, 1) for claimed in lease.items]

    assert not await settle.settle(explainer.connection(), lane, lease, ended=ended, closes=True)

    assert_bounded(explainer, settle.SETTLE, rows=0)
    assert_bounded(explainer, settle.SETTLE_LATE, rows=BATCH)


async def test_a_poll_looks_at_one_row_per_lane(explainer: Explainer) -> None:
    await explainer.fetch(worker.POLL, ["big", "line", "quiet"])

    assert_bounded(explainer, worker.POLL, rows=3)


async def test_a_renewal_touches_its_leases_only(explainer: Explainer) -> None:
    lease = await take(explainer, BIG)

    await explainer.fetch(worker.EXTEND_LEASES, [lease.token], None)

    assert_bounded(explainer, worker.EXTEND_LEASES, rows=1)


@pytest.mark.parametrize("lane_id", [BIG, LINE], ids=["unordered", "ordered"])
async def test_a_rescue_touches_what_was_lost_only(explainer: Explainer, lane_id: int) -> None:
    await take(explainer, lane_id)
    await take(explainer, lane_id)

    lost = await sweep.rescue(explainer.connection(), now=datetime.now(UTC) + HOUR)

    assert lost == 2 * BATCH
    assert_bounded(explainer, sweep.RESCUE, rows=2 * BATCH)


async def test_the_burial_of_heads_touches_their_lines_only(explainer: Explainer) -> None:
    await explainer.db.execute("UPDATE penstock.lane SET max_attempts = 1")
    await take(explainer, LINE)

    await sweep.rescue(explainer.connection(), now=datetime.now(UTC) + HOUR)

    assert_bounded(explainer, promote.BURY_HEADS, rows=BATCH)


async def test_an_idle_sweep_costs_next_to_nothing(explainer: Explainer) -> None:
    await explainer.fetchrow(sweep.SWEEP_DUE, None, heartbeat.FORGOTTEN_AFTER)

    assert_bounded(explainer, sweep.SWEEP_DUE, rows=0)


@pytest.mark.parametrize("position", [0, 300_000], ids=["at its beginning", "far behind"])
async def test_trimming_a_day_touches_its_batch_only(explainer: Explainer, position: int) -> None:
    """A day has 333,000 items here, and each sweep examines some of them."""
    await explainer.db.execute(
        """
        UPDATE penstock.history_day
        SET trimmed_lanes = '{1}',
            next_id = ((day - date '1970-01-01')::bigint << 32) + $1::integer
        WHERE day < (now() AT TIME ZONE 'UTC')::date
        """,
        position,
    )

    trimmed = await retain.trim_day(
        explainer.connection(), now=datetime.now(UTC) + timedelta(days=60)
    )

    assert trimmed is not None
    assert trimmed.examined == retain.TRIM_ITEMS_MAX
    assert_bounded(explainer, retain.TRIM_DAY, rows=retain.TRIM_ITEMS_MAX)


async def test_retained_items_are_found_by_their_age(explainer: Explainer) -> None:
    """Among many that must be kept for longer."""
    await explainer.db.execute(
        """
        INSERT INTO penstock.retained_item (id, from_at, lane_id)
        SELECT id, now() + interval '1 s' * (id % 1000000), 1 FROM penstock.item
        WHERE id < ((now() AT TIME ZONE 'UTC')::date - date '1970-01-01')::bigint << 32
        LIMIT 100000
        """
    )

    examined = await retain.trim_retained(
        explainer.connection(), now=datetime.now(UTC) + timedelta(days=60)
    )

    assert examined == retain.TRIM_ITEMS_MAX
    assert_bounded(explainer, retain.TRIM_RETAINED, rows=retain.TRIM_ITEMS_MAX)


async def test_expiry_touches_what_has_expired_only(explainer: Explainer) -> None:
    """A thousand deadlines pass at once, of items that lie all over the table."""
    later = datetime.now(UTC) + timedelta(days=100)

    expired = await sweep.expire(explainer.connection(), now=later)

    assert expired == sweep.ITEMS_MAX
    assert_bounded(explainer, sweep.EXPIRE, rows=sweep.ITEMS_MAX)


@pytest.mark.parametrize("lane", ["big", "line"])
async def test_bulk_enqueue_touches_what_it_adds_only(explainer: Explainer, lane: str) -> None:
    """Half of the keys are known already, and half of the lines exist."""
    items = [
        NewItem(
            payload=None,
            key=f"{lane}-{n}",
            order_key=f"line-{20_000 - BATCH // 2 + n}" if lane == "line" else None,
        )
        for n in range(BATCH)
    ]
    await enqueue.enqueue_many(explainer.db, lane, items[: BATCH // 2])

    accepted = await enqueue.enqueue_many(explainer.connection(), lane, items)

    assert sum(each.is_new for each in accepted) == BATCH // 2
    assert_bounded(explainer, enqueue.ENQUEUE_STAGED, rows=BATCH)


async def first_due(explainer: Explainer, lane_id: int) -> ItemId:
    return await explainer.db.fetchval(
        "SELECT id FROM penstock.ready WHERE lane_id = $1 ORDER BY due_at, id LIMIT 1", lane_id
    )


@pytest.mark.parametrize("lane_id", [BIG, LINE], ids=["unordered", "ordered"])
async def test_cancel_touches_one_item(explainer: Explainer, lane_id: int) -> None:
    item_id = await first_due(explainer, lane_id)

    await operate.cancel(explainer.connection(), item_id, who="plan")

    assert_bounded(explainer, operate.CANCEL, rows=1)


async def test_cancel_of_a_parked_item_touches_one_line(explainer: Explainer) -> None:
    item_id = await explainer.db.fetchval("SELECT max(id) FROM penstock.parked")

    await operate.cancel(explainer.connection(), item_id, who="plan")

    assert_bounded(explainer, operate.CANCEL, rows=1)


async def test_reschedule_touches_one_item(explainer: Explainer) -> None:
    item_id = await first_due(explainer, BIG)
    due_at = datetime.now(UTC) + HOUR

    await operate.reschedule(explainer.connection(), item_id, due_at, who="plan")

    assert_bounded(explainer, operate.RESCHEDULE, rows=1)


async def test_retry_of_a_dead_item_touches_one_item(explainer: Explainer) -> None:
    item_id = await explainer.db.fetchval("SELECT min(id) FROM penstock.dead")

    await operate.retry(explainer.connection(), item_id, who="plan")

    assert_bounded(explainer, operate.REPLAY_DEAD, rows=1)


async def test_a_step_of_a_replay_touches_what_it_brings_back_only(explainer: Explainer) -> None:
    await replay.start_replay(explainer.db, "big", who="plan")

    replayed = await replay.continue_replays(explainer.connection())

    assert replayed == replay.STEP_ITEMS
    assert_bounded(explainer, replay.STEP_REPLAY, rows=replay.STEP_ITEMS)


async def test_one_item_is_found_by_its_id(explainer: Explainer) -> None:
    item_id = await first_due(explainer, BIG)

    found = await inspect.read_item(explainer.connection(), item_id)

    assert found is not None
    assert_bounded(explainer, inspect.READ_ITEM, rows=1)


@pytest.mark.parametrize("lane_id", [BIG, LINE], ids=["unordered", "ordered"])
async def test_the_reasons_of_a_ready_item_are_a_few_rows(
    explainer: Explainer, lane_id: int
) -> None:
    """A person asks when the queue is long."""
    item_id = await first_due(explainer, lane_id)

    await why.why_item(explainer.connection(), item_id)

    for query in (why.READ_PLACE, why.READ_LOAD):
        assert_bounded(explainer, query, rows=10)


async def test_the_items_before_one_are_counted_up_to_a_limit(explainer: Explainer) -> None:
    later = datetime.now(UTC) + HOUR
    query = why.COUNT_AHEAD

    assert await explainer.fetchval(query, BIG, later, 0, 1_000) == 1_000
    assert_bounded(explainer, query, rows=1_000)


async def test_the_head_of_an_order_key_is_found_among_its_own_items(explainer: Explainer) -> None:
    parked = await explainer.db.fetchrow(
        "SELECT id, order_key FROM penstock.parked WHERE lane_id = $1 ORDER BY id LIMIT 1", LINE
    )
    assert parked is not None

    behind, *_ = await why.why_item(explainer.connection(), parked["id"])

    assert behind.data["head_id"] is not None
    assert_bounded(explainer, why.FIND_HEAD, rows=2 * why.NEIGHBOURS_MAX)


async def test_a_page_of_items_touches_one_page_of_items(explainer: Explainer) -> None:
    page = await inspect.list_items(explainer.connection(), "big", limit=100)

    assert len(page.items) == 100
    # The lane `line` has newer items, which are passed over: about 120 on a page.
    assert_bounded(explainer, inspect.LIST_ITEMS, rows=110)


FILTERS = {
    "dead": ("big", inspect.ItemFilter(state="dead"), 100),
    "held": ("big", inspect.ItemFilter(state="held"), 0),
    "leased": ("big", inspect.ItemFilter(state="leased"), 0),
    "scheduled": ("big", inspect.ItemFilter(state="scheduled"), 0),
    "done": ("big", inspect.ItemFilter(state="done"), 0),
    "order key": ("line", inspect.ItemFilter(order_key="line-77"), 11),
    "order key and state": ("line", inspect.ItemFilter(order_key="line-77", state="parked"), 10),
    "since": ("big", inspect.ItemFilter(since=datetime.now(UTC) + HOUR), 0),
    "until": ("big", inspect.ItemFilter(until=datetime.now(UTC) - 20 * HOUR), 0),
}


@pytest.mark.parametrize(("lane", "only", "count"), FILTERS.values(), ids=FILTERS)
async def test_a_filtered_page_of_items_looks_at_a_bounded_number(
    explainer: Explainer, *, lane: str, only: inspect.ItemFilter, count: int
) -> None:
    """Also if none of the newest items matches: those of the big lane are dead."""
    page = await inspect.list_items(explainer.connection(), lane, only=only, limit=100)

    assert len(page.items) == count
    assert_bounded(explainer, inspect.LIST_ITEMS, rows=inspect.LOOKED_AT_MAX)


async def test_a_page_of_dead_letters_touches_one_page_of_them(explainer: Explainer) -> None:
    dead = await inspect.list_dead(explainer.connection(), lane="big", limit=100)

    assert len(dead) == 100
    assert_bounded(explainer, inspect.LIST_DEAD, rows=100)


async def test_a_scrape_counts_no_further_than_its_limit(explainer: Explainer) -> None:
    """Monitoring must not cost more the more there is to do."""
    depth_max = 1_000

    rows = await explainer.fetch(inspect.MEASURE_LANES, depth_max, depth_max)

    depths = {row["lane"]: row["ready"] for row in rows}
    assert sorted(depths.values()) == [0, 0, 5, depth_max, depth_max, depth_max]
    assert_bounded(explainer, inspect.MEASURE_LANES, rows=4 * depth_max)


async def test_blocked_order_keys_are_found_without_the_others(explainer: Explainer) -> None:
    """Among 20,000 active keys, 100 are blocked by a dead head and 100 by a held one."""
    await explainer.db.execute("UPDATE penstock.lane SET on_dead_head = 'block' WHERE lane_id = 2")
    lease = await take(explainer, LINE, limit=200)
    lane = await read_lane(explainer.db, "line")
    ended = [
        Ended(claimed, Dead("refused") if n < 100 else Hold("no answer"), 1)
        for n, claimed in enumerate(lease.items)
    ]
    assert await settle.settle(explainer.db, lane, lease, ended=ended, closes=True)

    blocked = await inspect.list_blocked(explainer.connection())

    assert len(blocked) == 200
    assert_bounded(explainer, inspect.LIST_BLOCKED, rows=200)
