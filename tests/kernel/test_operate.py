"""What people may do to an item, in which state, and what the audit says afterwards."""

import itertools
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal

import pytest

from penstock import Dead, Done, Hold, Retry
from penstock.base.errors import InvalidInput
from penstock.kernel.errors import StateConflict, UnknownItem
from penstock.kernel.inspect import balance, list_audit, list_items, read_attempts, read_item
from penstock.kernel.item import Ending, ItemId
from penstock.kernel.lane import Lane, create_lane
from penstock.kernel.operate import cancel, hold, release, reschedule, resolve, retry, skip
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import Connection
from tests.kernel.scene import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    attempt_once,
    due_of,
    end,
    ids,
    outcomes_of,
    put,
    reason_of,
    state_of,
    take,
    try_claim,
)

_numbers = itertools.count(1)


@pytest.fixture
def db(shared: Connection) -> Connection:
    """One database for all of them: each keeps to a lane of its own."""
    return shared


@pytest.fixture
async def lane(db: Connection) -> Lane:
    return await ordered_lane(db)


async def ordered_lane(db: Connection, **policy: Any) -> Lane:
    """Return a new lane that keeps the order of keys."""
    name = f"rail-{next(_numbers)}"
    return await create_lane(db, name, who="test", ordering="per_key", backoff_jitter=0, **policy)


async def scheduled(db: Connection, lane: Lane) -> ItemId:
    return await put(db, lane)


async def retrying(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Retry("503", after=MINUTE))
    return item_id


async def lost(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await take(db, lane)
    await rescue(db, now=NOON + MINUTE)
    return item_id


async def moved(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await reschedule(db, item_id, NOON + HOUR, who="test")
    return item_id


async def parked(db: Connection, lane: Lane) -> ItemId:
    await put(db, lane, order_key="k")
    return await put(db, lane, order_key="k")


async def leased(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await take(db, lane)
    return item_id


async def held(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Hold("?"))
    return item_id


async def released(db: Connection, lane: Lane) -> ItemId:
    item_id = await held(db, lane)
    await release(db, item_id, who="test", reason="not paid", now=NOON + MINUTE)
    return item_id


async def dead(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Dead("no"))
    return item_id


async def replayed(db: Connection, lane: Lane) -> ItemId:
    item_id = await dead(db, lane)
    await retry(db, item_id, who="test", now=NOON + MINUTE)
    return item_id


async def done(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Done())
    return item_id


async def cancelled(db: Connection, lane: Lane) -> ItemId:
    item_id = await put(db, lane)
    await cancel(db, item_id, who="test", now=NOON)
    return item_id


Arrange = Callable[[Connection, Lane], Awaitable[ItemId]]
WAITING = [scheduled, retrying, lost, moved, parked, released, replayed]


@pytest.mark.covers("A96", "E77")
@pytest.mark.parametrize("arrange", [*WAITING, held, dead])
async def test_an_item_that_no_worker_holds_can_be_cancelled(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    """Wherever its due instant has been moved to since it was accepted."""
    item_id = await arrange(db, lane)
    counted = await balance(db, lane.name)

    await cancel(db, item_id, who="ops", now=NOON)

    assert await state_of(db, item_id) == "cancelled"
    assert item_id not in ids(await try_claim(db, lane, now=NOON + DAY))
    after = await balance(db, lane.name)
    assert after.is_even
    assert (after.accepted, after.cancelled) == (counted.accepted, 1)


@pytest.mark.covers("A16", "A96")
@pytest.mark.parametrize("arrange", [leased, done])
async def test_an_item_that_left_cannot_be_cancelled(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    """The call may be on its way; to say that it was stopped would be a lie."""
    item_id = await arrange(db, lane)
    state = await state_of(db, item_id)

    with pytest.raises(StateConflict, match=state):
        await cancel(db, item_id, who="ops")

    assert await state_of(db, item_id) == state
    assert await audited(db, item_id) == []


async def test_cancelling_again_is_harmless(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    await cancel(db, item_id, who="ops", now=NOON)

    await cancel(db, item_id, who="ops", now=NOON)

    assert await audited(db, item_id) == ["item.cancelled"]
    assert (await balance(db, lane.name)).is_even


@pytest.mark.covers("A96")
@pytest.mark.parametrize("arrange", WAITING)
async def test_an_item_that_waits_can_be_moved(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)
    state = await state_of(db, item_id)

    await reschedule(db, item_id, NOON + DAY, who="ops")

    assert await due_of(db, item_id) == NOON + DAY
    assert await state_of(db, item_id) == state
    assert item_id not in ids(await try_claim(db, lane, now=NOON + 2 * HOUR))
    assert (await balance(db, lane.name)).is_even


@pytest.mark.parametrize("arrange", [scheduled, retrying, lost, moved, released, replayed])
async def test_an_item_can_be_moved_forward_and_back(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)
    await reschedule(db, item_id, NOON + DAY, who="ops")

    await reschedule(db, item_id, NOON, who="ops")

    assert ids(await try_claim(db, lane)) == [item_id]


@pytest.mark.parametrize("arrange", [leased, held, dead, done, cancelled])
async def test_an_item_that_does_not_wait_cannot_be_moved(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)

    with pytest.raises(StateConflict):
        await reschedule(db, item_id, NOON + DAY, who="ops")


async def test_an_item_cannot_be_moved_past_its_deadline(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON, not_after=NOON + HOUR)

    with pytest.raises(InvalidInput, match="due_at"):
        await reschedule(db, item_id, NOON + DAY, who="ops")
    with pytest.raises(InvalidInput, match="due_at"):
        await reschedule(db, item_id, NOON.replace(tzinfo=None), who="ops")

    assert await due_of(db, item_id) == NOON
    assert await audited(db, item_id) == []


async def try_again(db: Connection, item_id: ItemId, *, now: datetime) -> None:
    await retry(db, item_id, who="ops", now=now)


async def release_it(db: Connection, item_id: ItemId, *, now: datetime) -> None:
    await release(db, item_id, who="ops", reason="not paid", now=now)


@pytest.mark.covers("E77")
@pytest.mark.parametrize(("arrange", "verb"), [(held, release_it), (dead, try_again)])
async def test_a_held_item_can_be_released_and_a_dead_one_retried(
    db: Connection, lane: Lane, *, arrange: Arrange, verb: Any
) -> None:
    item_id = await arrange(db, lane)

    await verb(db, item_id, now=NOON + HOUR)

    assert ids(await try_claim(db, lane, now=NOON + HOUR)) == [item_id]
    assert len(await outcomes_of(db, item_id)) == 1
    assert (await balance(db, lane.name)).is_even


@pytest.mark.parametrize("arrange", [scheduled, parked, leased, held, done, cancelled, replayed])
async def test_any_other_item_cannot_be_retried(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)
    audit = await audited(db, item_id)

    with pytest.raises(StateConflict):
        await retry(db, item_id, who="ops", now=NOON)

    assert await audited(db, item_id) == audit


async def test_a_dead_item_past_its_deadline_cannot_be_retried(db: Connection, lane: Lane) -> None:
    """It would only expire again."""
    item_id = await put(db, lane, not_after=NOON + MINUTE)
    await attempt_once(db, lane, Dead("no"))

    with pytest.raises(StateConflict):
        await retry(db, item_id, who="ops", now=NOON + HOUR)

    assert await state_of(db, item_id) == "dead"


async def test_an_item_that_does_not_exist_is_unknown(db: Connection) -> None:
    nobody = ItemId(7)

    for operation in (
        cancel(db, nobody, who="ops"),
        reschedule(db, nobody, NOON, who="ops"),
        retry(db, nobody, who="ops"),
        hold(db, nobody, who="ops", reason="?"),
        release(db, nobody, who="ops", reason="?"),
        resolve(db, nobody, "done", who="ops", reason="?"),
        skip(db, nobody, who="ops", reason="?"),
    ):
        with pytest.raises(UnknownItem):
            await operation


async def test_every_operation_is_audited_with_actor_and_previous_state(
    db: Connection, lane: Lane
) -> None:
    item_id = await dead(db, lane)
    await retry(db, item_id, who="ann", now=NOON)
    await reschedule(db, item_id, NOON + HOUR, who="bob")
    await cancel(db, item_id, who="cy", now=NOON)

    entries = await list_audit(db, subject=str(item_id))

    assert [(entry.who, entry.action) for entry in entries] == [
        ("cy", "item.cancelled"),
        ("bob", "item.rescheduled"),
        ("ann", "item.retried"),
    ]
    assert json.loads(entries[1].before or "") == {"due_at": NOON.isoformat()}
    assert json.loads(entries[1].after or "") == {"due_at": (NOON + HOUR).isoformat()}
    assert json.loads(entries[0].before or "") == {"state": "ready"}


async def test_items_are_listed_from_the_newest_with_their_states(
    db: Connection, lane: Lane
) -> None:
    everything = [await put(db, lane, n) for n in range(5)]
    lease = await take(db, lane, limit=2)
    await end(db, lane, lease, Done())

    page = await list_items(db, lane.name, limit=2)
    rest = await list_items(db, lane.name, after=page.next)

    assert [item.id for item in [*page.items, *rest.items]] == everything[::-1]
    assert [item.state for item in rest.items] == ["scheduled", "done", "done"]
    assert all(item.payload is None for item in page.items)
    assert rest.next is None


async def audited(db: Connection, item_id: ItemId) -> list[str]:
    """Return what was audited of an item, apart from what arranged it."""
    entries = await list_audit(db, subject=str(item_id))
    return [entry.action for entry in entries if entry.who != "test"]


@pytest.mark.parametrize("arrange", [scheduled, retrying, lost, moved, released, replayed])
async def test_a_waiting_item_can_be_held(db: Connection, lane: Lane, arrange: Arrange) -> None:
    """Somebody has doubts about a payment that is due tonight."""
    item_id = await arrange(db, lane)

    await hold(db, item_id, who="ann", reason="ask the customer", now=NOON)

    assert await state_of(db, item_id) == "held"
    assert await reason_of(db, item_id) == "ask the customer"
    assert item_id not in ids(await try_claim(db, lane, now=NOON + 2 * HOUR))
    assert (await balance(db, lane.name)).is_even


@pytest.mark.parametrize("arrange", [parked, leased, held, dead, done, cancelled])
async def test_an_item_that_does_not_wait_first_cannot_be_held(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    """The followers of a held item would overtake it; its key's head can be held instead."""
    item_id = await arrange(db, lane)
    before = await state_of(db, item_id)

    with pytest.raises(StateConflict):
        await hold(db, item_id, who="ann", reason="?", now=NOON)

    assert await state_of(db, item_id) == before


async def test_a_held_item_can_be_resolved_as_done_with_its_result(
    db: Connection, lane: Lane
) -> None:
    """The bank says that it was paid: the record says so too, and who found out."""
    item_id = await held(db, lane)

    await resolve(
        db, item_id, "done", who="ann", reason="paid, says the bank", result={"ref": 7}, now=NOON
    )

    assert await state_of(db, item_id) == "done"
    *_, last = await read_attempts(db, item_id)
    assert (last.outcome, last.reason, last.result) == ("done", "paid, says the bank", '{"ref": 7}')
    (entry, *_) = await list_audit(db, subject=str(item_id))
    assert (entry.who, entry.action) == ("ann", "item.resolved")
    assert json.loads(entry.before or "") == {"state": "held", "reason": "?"}
    assert json.loads(entry.after or "") == {
        "outcome": "done", "reason": "paid, says the bank", "result": {"ref": 7},
    }  # fmt: skip
    assert (await balance(db, lane.name)).is_even


async def test_a_held_item_can_be_resolved_as_dead_and_replayed(db: Connection, lane: Lane) -> None:
    item_id = await held(db, lane)

    await resolve(db, item_id, "dead", who="ann", reason="refused, says the bank", now=NOON)

    assert await state_of(db, item_id) == "dead"
    assert await reason_of(db, item_id) == "refused, says the bank"
    await retry(db, item_id, who="ann", now=NOON)
    assert ids(await try_claim(db, lane)) == [item_id]


@pytest.mark.parametrize("arrange", [scheduled, parked, leased, dead, done, cancelled])
async def test_only_a_held_item_can_be_released_or_resolved(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)
    audit = await audited(db, item_id)

    with pytest.raises(StateConflict):
        await release(db, item_id, who="ann", reason="?", now=NOON)
    with pytest.raises(StateConflict):
        await resolve(db, item_id, "done", who="ann", reason="?", now=NOON)

    assert await audited(db, item_id) == audit


@pytest.mark.parametrize("outcome", ["done", "dead"])
async def test_the_next_item_of_a_key_follows_a_resolved_head(
    db: Connection, *, outcome: Literal["done", "dead"]
) -> None:
    lane = await ordered_lane(db, on_dead_head="skip")
    head, follower = [await put(db, lane, number, order_key="k") for number in range(2)]
    await attempt_once(db, lane, Hold("?"))

    await resolve(db, head, outcome, who="ann", reason="found out", now=NOON)

    assert ids(await try_claim(db, lane)) == [follower]


async def test_a_head_resolved_as_dead_blocks_its_key_where_the_policy_says_so(
    db: Connection,
) -> None:
    lane = await ordered_lane(db, on_dead_head="block")
    head, follower = [await put(db, lane, number, order_key="k") for number in range(2)]
    await attempt_once(db, lane, Hold("?"))

    await resolve(db, head, "dead", who="ann", reason="refused", now=NOON)

    assert await state_of(db, follower) == "parked"


@pytest.mark.parametrize("ending", [Hold("?"), Dead("no"), None])
async def test_the_head_of_a_key_can_be_skipped(db: Connection, *, ending: Ending | None) -> None:
    """Held, dead or waiting: the next one goes on, and the head can be replayed."""
    lane = await ordered_lane(db, on_dead_head="block")
    head, follower = [await put(db, lane, number, order_key="k") for number in range(2)]
    if ending is not None:
        await attempt_once(db, lane, ending)

    await skip(db, head, who="ann", reason="the account is closed", now=NOON)

    assert await state_of(db, head) == "dead"
    assert ids(await try_claim(db, lane)) == [follower]
    (entry, *_) = await list_audit(db, subject=str(head))
    assert (entry.who, entry.action) == ("ann", "item.skipped")


async def test_a_follower_or_an_item_without_a_key_cannot_be_skipped(
    db: Connection, lane: Lane
) -> None:
    line = await ordered_lane(db)
    _, follower = [await put(db, line, number, order_key="k") for number in range(2)]
    alone = await put(db, lane)

    for item_id in (follower, alone):
        with pytest.raises(StateConflict):
            await skip(db, item_id, who="ann", reason="?", now=NOON)


async def test_a_decision_about_a_held_item_needs_a_reason(db: Connection, lane: Lane) -> None:
    """Months later nobody remembers why a payment was taken for made."""
    item_id = await held(db, lane)

    for operation in (
        release(db, item_id, who="ann", reason=" "),
        resolve(db, item_id, "done", who="ann", reason=""),
    ):
        with pytest.raises(InvalidInput, match="reason"):
            await operation

    assert await state_of(db, item_id) == "held"


async def test_an_item_held_and_released_before_it_is_due_keeps_its_due_instant(
    db: Connection, lane: Lane
) -> None:
    """A payment for tonight must not be made at noon because somebody looked at it."""
    item_id = await put(db, lane, due_at=NOON + 6 * HOUR)

    await hold(db, item_id, who="ann", reason="a doubt", now=NOON)
    held_due = await due_of(db, item_id)
    await release(db, item_id, who="ann", reason="no doubt", now=NOON + HOUR)

    assert held_due == NOON + 6 * HOUR
    assert await due_of(db, item_id) == NOON + 6 * HOUR
    assert ids(await try_claim(db, lane, now=NOON + 5 * HOUR)) == []
    assert ids(await try_claim(db, lane, now=NOON + 6 * HOUR)) == [item_id]


async def test_an_item_moved_and_then_held_keeps_its_last_due_instant(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane, due_at=NOON + HOUR)
    await reschedule(db, item_id, NOON + DAY, who="ann")

    await hold(db, item_id, who="ann", reason="a doubt", now=NOON)
    await release(db, item_id, who="ann", reason="no doubt", now=NOON + 2 * HOUR)

    assert await due_of(db, item_id) == NOON + DAY


async def test_an_item_released_after_its_due_instant_is_due_at_once(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane, due_at=NOON + HOUR)
    await hold(db, item_id, who="ann", reason="a doubt", now=NOON)

    await release(db, item_id, who="ann", reason="no doubt", now=NOON + DAY)

    assert await due_of(db, item_id) == NOON + DAY


@pytest.mark.parametrize("is_held", [True, False])
async def test_an_item_that_died_before_it_was_due_is_not_retried_early(
    db: Connection, lane: Lane, *, is_held: bool
) -> None:
    """An operator skipped it, or held it and resolved it as dead, and then changed their mind."""
    item_id = await put(db, lane, due_at=NOON + 6 * HOUR, order_key="k")
    if is_held:
        await hold(db, item_id, who="ann", reason="a doubt", now=NOON)
        await resolve(db, item_id, "dead", who="ann", reason="refused", now=NOON)
    else:
        await skip(db, item_id, who="ann", reason="refused", now=NOON)

    await retry(db, item_id, who="ann", now=NOON + HOUR)

    assert await due_of(db, item_id) == NOON + 6 * HOUR
    assert ids(await try_claim(db, lane, now=NOON + 5 * HOUR)) == []


async def last_entry(db: Connection, item_id: ItemId) -> tuple[Any, Any]:
    """Return before and after of the last audited change of an item."""
    (entry, *_) = await list_audit(db, subject=str(item_id))
    return json.loads(entry.before or "null"), json.loads(entry.after or "null")


async def test_the_audit_keeps_what_a_decision_replaced(db: Connection, lane: Lane) -> None:
    """The reason why an item was held is gone from the item once it is released."""
    item_id = await put(db, lane)

    await hold(db, item_id, who="ann", reason="a doubt", now=NOON)
    held_entry = await last_entry(db, item_id)
    await release(db, item_id, who="ann", reason="no doubt", now=NOON)
    released_entry = await last_entry(db, item_id)
    await attempt_once(db, lane, Dead("no"))
    await retry(db, item_id, who="ann", now=NOON)
    retried_entry = await last_entry(db, item_id)

    before = {"state": "scheduled", "due_at": NOON.isoformat()}
    assert held_entry == (before, {"reason": "a doubt"})
    assert released_entry == ({"state": "held", "reason": "a doubt"}, {"reason": "no doubt"})
    assert retried_entry == ({"state": "dead", "reason": "no"}, None)


@pytest.mark.parametrize("arrange", [held, dead])
async def test_the_audit_keeps_the_reason_of_a_cancelled_item(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)
    state, reason = await state_of(db, item_id), await reason_of(db, item_id)

    await cancel(db, item_id, who="ann", now=NOON)

    assert await last_entry(db, item_id) == ({"state": state, "reason": reason}, None)


async def test_cancel_reschedule_and_retry_take_a_reason(db: Connection, lane: Lane) -> None:
    item_id = await dead(db, lane)

    await retry(db, item_id, who="ann", reason="the bank is back", now=NOON)
    _, retried = await last_entry(db, item_id)
    await reschedule(db, item_id, NOON + HOUR, who="ann", reason="not before one")
    _, moved_to = await last_entry(db, item_id)
    await cancel(db, item_id, who="ann", reason="paid by hand", now=NOON)
    _, ended = await last_entry(db, item_id)

    assert retried == {"reason": "the bank is back"}
    assert moved_to == {"due_at": (NOON + HOUR).isoformat(), "reason": "not before one"}
    assert ended == {"reason": "paid by hand"}


def decisions(db: Connection, item_id: ItemId, **given: Any) -> list[Awaitable[None]]:
    """Return each verb, with the same operator and reason."""
    return [
        cancel(db, item_id, **given),
        reschedule(db, item_id, NOON, **given),
        retry(db, item_id, **given),
        hold(db, item_id, **given),
        release(db, item_id, **given),
        resolve(db, item_id, "done", **given),
        skip(db, item_id, **given),
    ]


@pytest.mark.parametrize(
    "reason", ["", " ", "x" * 1001, "a\x00b", "a\ud800b", 7], ids=lambda reason: repr(reason)[:8]
)
async def test_a_reason_that_cannot_be_kept_whole_is_refused(
    db: Connection, lane: Lane, reason: Any
) -> None:
    """The same text is accepted in Python, over REST and on the command line, or nowhere."""
    item_id = await held(db, lane)

    for decision in decisions(db, item_id, who="ann", reason=reason):
        with pytest.raises(InvalidInput, match="reason"):
            await decision

    assert await state_of(db, item_id) == "held"
    assert await audited(db, item_id) == []


@pytest.mark.parametrize("who", ["", " ", "a\x00b", None], ids=repr)
async def test_a_decision_needs_the_name_of_its_operator(
    db: Connection, lane: Lane, who: Any
) -> None:
    item_id = await held(db, lane)

    for decision in decisions(db, item_id, who=who, reason="?"):
        with pytest.raises(InvalidInput, match="who"):
            await decision

    assert await state_of(db, item_id) == "held"


@pytest.mark.parametrize("outcome", ["Done", "maybe", "", None])
async def test_a_held_item_can_only_be_resolved_as_done_or_dead(
    db: Connection, lane: Lane, outcome: Any
) -> None:
    """A typing error must not end a payment as dead."""
    item_id = await held(db, lane)

    with pytest.raises(InvalidInput, match="outcome"):
        await resolve(db, item_id, outcome, who="ann", reason="?", now=NOON)

    assert await state_of(db, item_id) == "held"
    assert await audited(db, item_id) == []


async def test_a_held_item_past_its_deadline_cannot_be_released(db: Connection, lane: Lane) -> None:
    """It would expire at once; whoever releases it wants it to be tried."""
    item_id = await put(db, lane, not_after=NOON + MINUTE)
    await attempt_once(db, lane, Hold("?"))

    with pytest.raises(StateConflict, match="its deadline has passed"):
        await release(db, item_id, who="ann", reason="?", now=NOON + HOUR)

    assert await state_of(db, item_id) == "held"


async def test_a_refusal_says_that_only_the_head_of_a_key_can_be_skipped(
    db: Connection, lane: Lane
) -> None:
    _, follower = [await put(db, lane, number, order_key="k") for number in range(2)]
    alone = await put(db, lane)

    for item_id in (follower, alone):
        with pytest.raises(StateConflict, match="only the head of an order key can be skipped"):
            await skip(db, item_id, who="ann", reason="?", now=NOON)
    with pytest.raises(StateConflict, match="only the head of its order key can be held"):
        await hold(db, follower, who="ann", reason="?", now=NOON)


async def test_an_item_resolved_without_an_attempt_has_none_of_a_worker(
    db: Connection, lane: Lane
) -> None:
    """Its history must not say that a worker has paid it."""
    item_id = await put(db, lane)
    await hold(db, item_id, who="ann", reason="a doubt", now=NOON)

    await resolve(db, item_id, "done", who="ann", reason="paid by hand", now=NOON)

    found = await read_item(db, item_id)
    assert found is not None
    assert (found.state, found.attempts) == ("done", 0)
    (only,) = await read_attempts(db, item_id)
    assert (only.resolved_by, only.claimed_at, only.duration_ms) == ("ann", None, None)


@pytest.mark.parametrize("arrange", [held, dead, lost])
async def test_a_cancelled_item_keeps_the_number_of_its_attempts(
    db: Connection, lane: Lane, arrange: Arrange
) -> None:
    item_id = await arrange(db, lane)

    await cancel(db, item_id, who="ann", now=NOON)

    found = await read_item(db, item_id)
    assert found is not None
    assert (found.state, found.attempts) == ("cancelled", 1)
