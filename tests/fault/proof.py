"""What must be true after any fault, by the database and by the record of the handlers."""

from collections import Counter, defaultdict
from typing import LiteralString

from tests.fault.harness import Harness

# No item has an attempt after it was done, a gap in its attempts, or more than one done.
BROKEN_HISTORIES: LiteralString = """
SELECT item_id
FROM penstock.attempt
GROUP BY item_id
HAVING count(*) <> max(attempt)
    OR count(*) FILTER (WHERE outcome = 'done') <> 1
    OR max(attempt) FILTER (WHERE outcome = 'done') <> max(attempt)
"""
# Tokens grow with each claim, and a key has one claimed item at a time.
INVERSIONS: LiteralString = """
SELECT item_id
FROM (
    SELECT item_id, item_id < lag(item_id) OVER (PARTITION BY order_key ORDER BY token) AS is_late
    FROM penstock.attempt JOIN penstock.item ON item.id = item_id
    WHERE outcome = 'done' AND order_key IS NOT NULL
) AS done
WHERE is_late
"""
ATTEMPTS: LiteralString = "SELECT item_id, token, outcome FROM penstock.attempt"


async def count_lost(harness: Harness) -> int:
    """Return how many attempts were lost with their workers."""
    return await harness.pool.fetchval(
        "SELECT count(*) FROM penstock.attempt WHERE outcome = 'lost'"
    )


async def assert_nothing_is_lost(harness: Harness, *, items: int) -> None:
    counted = await harness.balance()

    assert counted is not None
    assert counted.is_even
    assert (counted.accepted, counted.done) == (items, items)


async def assert_nothing_is_done_twice(harness: Harness) -> None:
    """A second start needs a reason in the attempts: the first was lost, or asked for a retry."""
    assert await harness.pool.fetch(BROKEN_HISTORIES) == []

    attempts = await harness.pool.fetch(ATTEMPTS)
    recorded = {(row["item_id"], row["token"]) for row in attempts}
    reasons = Counter(row["item_id"] for row in attempts if row["outcome"] in ("lost", "retry"))
    starts = [(item, token) for item, token, _ in harness.starts()]
    assert max(Counter(starts).values()) == 1, "an item was started twice under one lease"
    assert set(starts) <= recorded, "a start left no attempt behind"
    unexplained = {
        item: count
        for item, count in Counter(item for item, _ in starts).items()
        if count - 1 > reasons[item]
    }
    assert unexplained == {}


async def assert_order_is_kept(harness: Harness) -> None:
    """Of each key, items are started for the first time, and are done, in their own order."""
    first_starts: dict[str, list[int]] = defaultdict(list)
    seen = set[int]()
    for item, _, order_key in harness.starts():
        if order_key != "-" and item not in seen:
            seen.add(item)
            first_starts[order_key].append(item)

    inverted = {key: ids for key, ids in first_starts.items() if ids != sorted(ids)}
    assert inverted == {}
    assert await harness.pool.fetch(INVERSIONS) == []
