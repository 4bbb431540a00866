"""Why has my item not run? Each obstacle is named, with the values that a person needs."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock import Dead, Done, Hold, Retry, Snooze
from penstock.kernel.errors import UnknownItem, UnknownLane
from penstock.kernel.fence import MARK_STARTED
from penstock.kernel.heartbeat import ALIVE_FOR, report_worker
from penstock.kernel.item import Ending, ItemId
from penstock.kernel.lane import Lane, create_lane, pause_lane, set_lane
from penstock.kernel.operate import cancel, retry
from penstock.kernel.why import Reason, why_item, why_lane
from penstock.postgres.pool import Connection
from tests.kernel.scene import HOUR, MINUTE, NOON, SECOND, attempt_once, put, take


async def why(db: Connection, item_id: ItemId, *, now: datetime = NOON) -> list[Reason]:
    return await why_item(db, item_id, now=now)


def codes(reasons: list[Reason]) -> list[str]:
    return [each.code for each in reasons]


@pytest.fixture(autouse=True)
async def _worker(db: Connection, lane: Lane) -> None:
    """A worker of the lane that was seen at noon."""
    await report_worker(db, "host:7:ab", [lane.name, "ordered"], now=NOON)


async def ordered_lane(db: Connection, **policy: Any) -> Lane:
    return await create_lane(db, "ordered", who="test", ordering="per_key", **policy)


# ------------------------------------------------------------------------------------- waiting


async def test_a_due_item_without_an_obstacle_is_claimed_next(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    assert codes(await why(db, item_id)) == ["next_claim"]
    assert codes(await why_lane(db, lane.name, now=NOON)) == ["next_claim"]


async def test_an_item_of_a_paused_lane_says_so(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    await pause_lane(db, lane.name, who="test")

    (reason,) = await why(db, item_id)

    assert reason.code == "paused"
    assert reason.sentence == "lane mail is paused"
    assert codes(await why_lane(db, lane.name, now=NOON)) == ["paused"]


async def test_an_item_that_no_worker_runs_says_so(db: Connection, lane: Lane) -> None:
    """The first mistake of a new user: the item is accepted, and no process has its handler."""
    unserved = await create_lane(db, "calls", who="test")
    never = await put(db, unserved)
    silent = await put(db, lane)

    (reason,) = await why(db, never)
    (late,) = await why(db, silent, now=NOON + ALIVE_FOR)

    assert (reason.code, reason.sentence) == ("no_worker", "no worker runs lane calls")
    assert (late.code, late.data) == ("no_worker", {"seen_at": NOON})


async def test_an_item_that_is_not_due_says_when_it_is(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON + HOUR, not_after=NOON + 2 * HOUR)

    reason, deadline = await why(db, item_id)

    assert reason.code == "not_due"
    assert reason.data["due_at"] == NOON + HOUR
    assert "2030-01-01 13:00:00 UTC" in reason.sentence
    assert (deadline.code, deadline.data["not_after"]) == ("deadline", NOON + 2 * HOUR)
    assert codes(await why_lane(db, lane.name, now=NOON)) == ["nothing_due"]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [(Retry("refused", after=HOUR), "retry"), (Snooze(HOUR, "cooldown"), "snooze")],
    ids=["retry", "snooze"],
)
async def test_an_item_that_is_tried_again_says_how_its_attempt_ended(
    db: Connection, lane: Lane, *, ending: Retry | Snooze, outcome: str
) -> None:
    item_id = await put(db, lane)
    await attempt_once(db, lane, ending)

    (reason,) = await why(db, item_id)

    assert reason.code == "not_due"
    assert reason.data["outcome"] == outcome
    assert reason.data["reason"] == ending.reason
    assert f"attempt 1 ended with {outcome}, {ending.reason}" in reason.sentence


async def test_an_item_behind_others_says_how_many(db: Connection, lane: Lane) -> None:
    for _ in range(3):
        await put(db, lane)
    last = await put(db, lane, at=NOON + SECOND)

    (reason,) = await why(db, last, now=NOON + SECOND)

    assert (reason.code, reason.data["items_ahead"]) == ("items_ahead", 3)


async def test_an_item_of_a_slow_lane_says_when_its_rate_lets_it_start(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", rate=0.1)
    *_, last = [await put(db, lane) for _ in range(4)]
    await take(db, lane)

    slot, ahead = await why(db, last)

    assert (slot.code, slot.data) == ("rate", {"next_at": NOON + 10 * SECOND, "rate": 0.1})
    assert (ahead.code, ahead.data["items_ahead"]) == ("rate", 2)
    assert ahead.data["starts_at"] == NOON + 30 * SECOND


async def test_an_item_waits_for_the_dispatch_interval(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", dispatch_interval=MINUTE)
    await put(db, lane)
    await take(db, lane)
    item_id = await put(db, lane)

    (reason,) = await why(db, item_id)

    assert (reason.code, reason.data) == ("dispatch_interval", {"next_at": NOON + MINUTE})


async def test_an_item_waits_while_the_workers_hold_all_that_they_may(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", concurrency=2)
    for _ in range(2):
        await put(db, lane)
    await take(db, lane)
    item_id = await put(db, lane)

    (reason,) = await why(db, item_id)

    assert reason.code == "concurrency"
    assert reason.data == {"leased": 2, "workers": 1, "concurrency": 2}
    assert codes(await why_lane(db, lane.name, now=NOON)) == ["concurrency", "in_flight"]


# --------------------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("ending", "state", "verbs"),
    [
        (Hold("no answer"), "held", ["release", "resolve", "cancel", "skip"]),
        (Dead("refused"), "dead", ["retry", "cancel", "skip"]),
    ],
    ids=["held", "dead"],
)
async def test_a_follower_names_the_head_that_blocks_it(
    db: Connection, *, ending: Hold | Dead, state: str, verbs: list[str]
) -> None:
    """It waits for ever, and neither its lane nor its own row shows that."""
    lane = await ordered_lane(db)
    for _ in range(3):
        await put(db, lane, order_key="other")
    head = await put(db, lane, order_key="a")
    followers = [await put(db, lane, order_key="a") for _ in range(3)]
    await attempt_once(db, lane, ending, now=NOON + SECOND)

    behind, decision = await why(db, followers[-1], now=NOON + MINUTE)

    assert behind.code == "behind_head"
    assert behind.data == {
        "item_id": followers[-1], "order_key": "a", "head_id": head, "head_state": state,
        "since": NOON + SECOND,
    }  # fmt: skip
    assert f"waits for item {head} " in behind.sentence
    assert decision.code == state
    assert decision.data["reason"] == ending.reason
    assert decision.data["verbs"] == verbs


async def test_a_follower_of_a_head_that_runs_or_waits_names_it(db: Connection) -> None:
    lane = await ordered_lane(db)
    await put(db, lane, order_key="a", at=NOON - HOUR)
    await attempt_once(db, lane, Done(), now=NOON - HOUR)
    head = await put(db, lane, order_key="a")
    follower = await put(db, lane, order_key="a")

    waiting = await why(db, follower)
    await take(db, lane)
    running = await why(db, follower)

    assert codes(waiting) == ["behind_head", "next_claim"]
    assert waiting[0].data["head_id"] == head
    assert codes(running) == ["behind_head", "leased"]
    assert running[0].data["head_id"] == head
    assert running[0].data["head_state"] == "leased"


async def test_a_replayed_item_behind_a_later_head_names_it(db: Connection) -> None:
    """A dead head that was set aside comes back before the followers, and after the new head."""
    lane = await ordered_lane(db, on_dead_head="park")
    first = await put(db, lane, order_key="a")
    second = await put(db, lane, order_key="a")
    await attempt_once(db, lane, Dead("refused"))
    await retry(db, first, who="test")

    behind, *_ = await why(db, first)

    assert behind.code == "behind_head"
    assert behind.data["head_id"] == second


# -------------------------------------------------------------------------------- other states


async def test_an_item_in_flight_names_its_worker(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    lease = await take(db, lane)

    (reason,) = await why(db, item_id)
    (expired,) = await why(db, item_id, now=NOON + HOUR)

    assert reason.code == "leased"
    assert reason.data == {
        "item_id": item_id, "worker": "test", "token": lease.token, "claimed_at": NOON,
        "expires_at": NOON + timedelta(seconds=30), "has_started": None,
    }  # fmt: skip
    assert expired.code == "lease_expired"


async def test_a_lane_with_start_marks_says_whether_an_item_has_started(db: Connection) -> None:
    lane = await create_lane(db, "payouts", who="test", on_lost="hold")
    started, waits = await put(db, lane), await put(db, lane)
    lease = await take(db, lane)
    await db.fetch(MARK_STARTED, [lease.token], [started], NOON)

    (first,), (second,) = await why(db, started), await why(db, waits)

    assert (first.data["has_started"], second.data["has_started"]) == (True, False)
    assert first.sentence.endswith("and has started it")
    assert second.sentence.endswith("and has not started it")


async def test_an_item_that_has_ended_says_how(db: Connection, lane: Lane) -> None:
    done = await put(db, lane)
    await attempt_once(db, lane, Done())
    dead = await put(db, lane)
    await attempt_once(db, lane, Dead("refused"))
    gone = await put(db, lane)
    await cancel(db, gone, who="test", now=NOON)

    (first,), (second,), (third,) = [await why(db, each) for each in (done, dead, gone)]

    assert (first.code, first.data["since"]) == ("done", NOON)
    assert (second.code, second.data["reason"]) == ("dead", "refused")
    assert second.data["verbs"] == ["retry", "cancel"]
    assert (third.code, third.data["since"]) == ("cancelled", NOON)
    assert codes(await why_lane(db, lane.name, now=NOON)) == ["empty"]


async def test_what_does_not_exist_is_refused(db: Connection) -> None:
    with pytest.raises(UnknownItem):
        await why_item(db, ItemId(1))
    with pytest.raises(UnknownLane):
        await why_lane(db, "nothing")


# ---------------------------------------------------------------------------------------- lanes


@pytest.mark.parametrize(("ending", "state"), [(Dead("no"), "dead"), (Hold("?"), "held")])
async def test_a_lane_whose_items_wait_behind_a_head_is_not_empty(
    db: Connection, *, ending: Ending, state: str
) -> None:
    """The lane looks idle, and nobody would look for the one item that blocks it."""
    lane = await ordered_lane(db)
    head, _ = [await put(db, lane, number, order_key="k") for number in range(2)]
    await attempt_once(db, lane, ending)

    (reason,) = await why_lane(db, lane.name, now=NOON)

    assert reason.code == "behind_head"
    assert reason.data == {"head_state": state, "order_keys": 1, "head_id": head}
    assert f"wait behind {state} heads, such as item {head}" in reason.sentence


async def test_an_expired_lease_says_that_the_item_will_be_held(db: Connection) -> None:
    """In a lane that holds lost items, none of them returns by itself after its start."""
    lane = await create_lane(db, "payouts", who="test", on_lost="hold")
    started, idle = [await put(db, lane) for _ in range(2)]
    lease = await take(db, lane)
    await db.fetch(MARK_STARTED, [lease.token], [started], NOON)

    (lost,) = await why(db, started, now=NOON + HOUR)
    (returned,) = await why(db, idle, now=NOON + HOUR)

    assert "a sweeper holds the item, which may have been executed" in lost.sentence
    assert "a sweeper returns the item" in returned.sentence
