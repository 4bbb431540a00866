"""What must be true after any fault: asked of the database, and of the handlers' own record."""

from collections import Counter, defaultdict
from typing import LiteralString

from tests.fault.scene import Scene

# No item has an attempt after it was done, a gap in its attempts, or more than one done.
BROKEN_HISTORIES: LiteralString = """
SELECT item_id
FROM penstock.attempt
GROUP BY item_id
HAVING count(*) <> max(attempt)
    OR count(*) FILTER (WHERE outcome = 'done') <> 1
    OR max(attempt) FILTER (WHERE outcome = 'done') <> max(attempt)
"""
# Tokens grow with each claim, and a key has one item out at a time.
INVERSIONS: LiteralString = """
SELECT item_id
FROM (
    SELECT item_id, item_id < lag(item_id) OVER (PARTITION BY order_key ORDER BY token) AS is_behind
    FROM penstock.attempt JOIN penstock.item ON item.id = item_id
    WHERE outcome = 'done' AND order_key IS NOT NULL
) AS done
WHERE is_behind
"""
ATTEMPTS: LiteralString = "SELECT item_id, token, outcome FROM penstock.attempt"


async def count_lost(scene: Scene) -> int:
    """Return how many attempts were lost with their workers."""
    return await scene.pool.fetchval("SELECT count(*) FROM penstock.attempt WHERE outcome = 'lost'")


async def assert_nothing_is_lost(scene: Scene, *, items: int) -> None:
    counted = await scene.balance()

    assert counted is not None
    assert counted.is_even
    assert (counted.accepted, counted.done) == (items, items)


async def assert_nothing_is_done_twice(scene: Scene) -> None:
    """A second start needs a reason in the attempts: the first was lost, or asked for a retry."""
    assert await scene.pool.fetch(BROKEN_HISTORIES) == []

    attempts = await scene.pool.fetch(ATTEMPTS)
    recorded = {(row["item_id"], row["token"]) for row in attempts}
    excuses = Counter(row["item_id"] for row in attempts if row["outcome"] in ("lost", "retry"))
    starts = [(item, token) for item, token, _ in scene.starts()]
    assert max(Counter(starts).values()) == 1, "an item was started twice under one lease"
    assert set(starts) <= recorded, "a start left no attempt behind"
    unexcused = {
        item: count
        for item, count in Counter(item for item, _ in starts).items()
        if count - 1 > excuses[item]
    }
    assert unexcused == {}


async def assert_order_is_kept(scene: Scene) -> None:
    """Of each key, items are started for the first time, and are done, in their own order."""
    first_starts: dict[str, list[int]] = defaultdict(list)
    seen = set[int]()
    for item, _, order_key in scene.starts():
        if order_key != "-" and item not in seen:
            seen.add(item)
            first_starts[order_key].append(item)

    inverted = {key: ids for key, ids in first_starts.items() if ids != sorted(ids)}
    assert inverted == {}
    assert await scene.pool.fetch(INVERSIONS) == []
