"""Every try is a row that is only inserted; what counts against an item, and what ends it."""

import pytest

from penstock import Dead, Done, Retry, Snooze
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.inspect import balance, list_dead, read_attempts
from penstock.kernel.lane import Lane, set_lane
from penstock.kernel.operate import reschedule, retry
from penstock.kernel.sweep import SWEEP_INTERVAL, expire, rescue, sweep
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    attempt_once,
    end,
    ids,
    outcomes_of,
    put,
    reason_of,
    state_of,
    take,
    try_claim,
)


@pytest.mark.covers("A39", "A41", "A88", "B39", "B41", "B63", "C3", "C32")
async def test_five_attempts_are_five_tries(db: Connection, lane: Lane) -> None:
    """When the fifth attempt fails the item is dead, is listed, and is never tried again."""
    item_id = await put(db, lane)

    for hours in range(5):
        assert await state_of(db, item_id) != "dead"
        await attempt_once(db, lane, Retry("503"), now=NOON + hours * HOUR)

    assert await state_of(db, item_id) == "dead"
    assert await reason_of(db, item_id) == "503"
    assert await outcomes_of(db, item_id) == ["retry"] * 4 + ["dead"]
    assert [dead.id for dead in await list_dead(db, lane=lane.name)] == [item_id]
    assert await try_claim(db, lane, now=NOON + 100 * DAY) is None


@pytest.mark.parametrize(("attempts_max", "tries"), [(1, 1), (2, 2), (7, 7), (None, 5)])
async def test_a_handler_may_grant_an_item_fewer_or_more_attempts_than_the_lane(
    db: Connection, lane: Lane, *, attempts_max: int | None, tries: int
) -> None:
    """A webhook's subscriber has a schedule of its own; the lane's policy is for all others."""
    item_id = await put(db, lane)

    for hours in range(tries):
        assert await state_of(db, item_id) != "dead"
        failed = Retry("503", attempts_max=attempts_max)
        await attempt_once(db, lane, failed, now=NOON + hours * HOUR)

    assert await state_of(db, item_id) == "dead"


async def test_attempts_are_numbered_and_keep_their_reasons(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Retry("first"), now=NOON)
    await attempt_once(db, lane, Retry("second"), now=NOON + HOUR)
    await attempt_once(db, lane, Done(), now=NOON + 2 * HOUR)

    attempts = await read_attempts(db, item_id)

    assert [(each.attempt, each.reason) for each in attempts] == [
        (1, "first"),
        (2, "second"),
        (3, None),
    ]
    assert [each.token for each in attempts] == sorted(each.token for each in attempts)


async def test_a_snooze_costs_no_attempt(db: Connection, lane: Lane) -> None:
    """An open breaker or a full semaphore is not the item's fault."""
    lane = await set_lane(db, lane.name, who="test", max_attempts=2)
    item_id = await put(db, lane)
    for hours in range(10):
        await attempt_once(db, lane, Snooze(MINUTE), now=NOON + hours * HOUR)

    await attempt_once(db, lane, Retry("503"), now=NOON + DAY)
    assert await state_of(db, item_id) == "scheduled"
    await attempt_once(db, lane, Retry("503"), now=NOON + 2 * DAY)

    assert await state_of(db, item_id) == "dead"


async def test_the_backoff_does_not_count_snoozes(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    for hours in range(5):
        await attempt_once(db, lane, Snooze(MINUTE), now=NOON + hours * HOUR)

    await attempt_once(db, lane, Retry("503"), now=NOON + DAY)

    last = (await read_attempts(db, item_id))[-1]
    assert last.retry_at == NOON + DAY + SECOND


@pytest.mark.covers("A40", "C34", "E44", "E45", "E46", "E66", "A37", "E28")
async def test_the_items_of_a_dead_worker_become_ready_again(db: Connection, lane: Lane) -> None:
    """The same item under the same id, with a lost attempt between, once its lease is over."""
    item_id = await put(db, lane, key="k")
    await take(db, lane)
    assert await rescue(db, now=NOON + lane.lease - SECOND) == 0

    assert await rescue(db, now=NOON + lane.lease) == 1

    (claimed,) = (await take(db, lane, now=NOON + lane.lease)).items
    assert (claimed.id, claimed.key, claimed.attempt) == (item_id, "k", 1)
    assert await outcomes_of(db, item_id) == ["lost"]


@pytest.mark.covers("E45")
async def test_rescuing_twice_is_harmless(db: Connection, lane: Lane) -> None:
    await put(db, lane)
    await take(db, lane)

    assert [await rescue(db, now=NOON + HOUR) for _ in range(2)] == [1, 0]

    assert (await balance(db)).ready == 1


@pytest.mark.covers("A89")
async def test_a_poison_item_ends_dead(db: Connection, lane: Lane) -> None:
    """It kills every worker that touches it; a lost attempt counts, so it cannot go on for ever."""
    item_id = await put(db, lane)

    for hours in range(5):
        await take(db, lane, now=NOON + hours * HOUR)
        await rescue(db, now=NOON + hours * HOUR + MINUTE)

    assert await state_of(db, item_id) == "dead"
    assert await reason_of(db, item_id) == "lost"
    assert await outcomes_of(db, item_id) == ["lost"] * 5
    assert (await balance(db)).is_even


@pytest.mark.covers("E47", "E78")
async def test_one_sweep_returns_the_items_of_all_expired_leases(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """Worst case: the lease plus one period of the sweep, 35 s with the defaults."""
    lost = await put(db, lane)
    await take(db, lane)
    late = await put(db, lane, not_after=NOON + SECOND)

    swept = await sweep(pool, meter=Meter(), log=get_logger(), now=NOON + lane.lease)

    assert lane.lease + SWEEP_INTERVAL <= 35 * SECOND
    assert (swept.rescued, swept.expired) == (1, 1)
    assert ids(await try_claim(db, lane, now=NOON + lane.lease)) == [lost]
    assert await state_of(db, late) == "dead"
    again = await sweep(pool, meter=Meter(), log=get_logger(), now=NOON + lane.lease)
    assert (again.rescued, again.expired) == (0, 0)


@pytest.mark.covers("A88", "C10", "C32")
async def test_a_lower_maximum_holds_for_items_under_way(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    await attempt_once(db, lane, Retry("503"))
    lane = await set_lane(db, lane.name, who="test", max_attempts=1)

    await attempt_once(db, lane, Retry("503"), now=NOON + HOUR)

    assert await state_of(db, item_id) == "dead"


async def test_a_replayed_item_has_a_new_set_of_attempts(db: Connection, lane: Lane) -> None:
    """Its history continues: attempt numbers increase and none is overwritten."""
    lane = await set_lane(db, lane.name, who="test", max_attempts=2)
    item_id = await put(db, lane)
    await attempt_once(db, lane, Dead("no"))
    await retry(db, item_id, who="ops", now=NOON + HOUR)

    await attempt_once(db, lane, Retry("503"), now=NOON + HOUR)
    assert await state_of(db, item_id) == "scheduled"
    await attempt_once(db, lane, Retry("503"), now=NOON + DAY)

    assert await outcomes_of(db, item_id) == ["dead", "retry", "dead"]


# -------------------------------------------------------------------------------------- deadlines


@pytest.mark.covers("A97")
async def test_an_unclaimed_item_expires(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON, not_after=NOON + HOUR)
    assert await expire(db, now=NOON + HOUR - SECOND) == 0

    assert await expire(db, now=NOON + HOUR) == 1

    assert (await state_of(db, item_id), await reason_of(db, item_id)) == ("dead", "expired")
    assert ids(await try_claim(db, lane, now=NOON + DAY)) == []
    assert (await balance(db)).is_even


@pytest.mark.covers("A97")
async def test_a_retry_after_the_deadline_makes_the_item_dead(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, not_after=NOON + MINUTE)

    await attempt_once(db, lane, Retry("503", after=HOUR))

    assert (await state_of(db, item_id), await reason_of(db, item_id)) == ("dead", "expired")


async def test_a_snooze_after_the_deadline_makes_the_item_dead(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, not_after=NOON + MINUTE)

    await attempt_once(db, lane, Snooze(HOUR))

    assert await reason_of(db, item_id) == "expired"


async def test_a_retry_in_time_is_a_retry(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, not_after=NOON + MINUTE)

    await attempt_once(db, lane, Retry("503"))

    assert await state_of(db, item_id) == "scheduled"


async def test_an_item_claimed_before_its_deadline_may_still_be_done(
    db: Connection, lane: Lane
) -> None:
    """The call has been made; only the receiver knows whether it was in time."""
    item_id = await put(db, lane, not_after=NOON + SECOND)
    lease = await take(db, lane)

    assert await expire(db, now=NOON + MINUTE) == 0
    await end(db, lane, lease, Done(), now=NOON + MINUTE)

    assert await state_of(db, item_id) == "done"


async def test_a_retried_item_still_expires_while_it_waits(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, not_after=NOON + HOUR)
    await attempt_once(db, lane, Retry("503", after=MINUTE))

    assert await expire(db, now=NOON + HOUR) == 1

    assert await state_of(db, item_id) == "dead"


async def test_a_lost_item_past_its_deadline_does_not_wait_for_ever(
    db: Connection, lane: Lane
) -> None:
    """A deadline that passes while a worker holds the item still applies if that worker dies."""
    lane = await set_lane(db, lane.name, who="test")
    item_id = await put(db, lane, not_after=NOON + SECOND)
    await take(db, lane)
    await expire(db, now=NOON + 2 * SECOND)
    await rescue(db, now=NOON + HOUR)

    await expire(db, now=NOON + HOUR)

    assert (await state_of(db, item_id), await reason_of(db, item_id)) == ("dead", "expired")


async def test_an_item_that_was_moved_expires_too(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON, not_after=NOON + HOUR)
    await reschedule(db, item_id, NOON + MINUTE, who="ops")

    assert await expire(db, now=NOON + HOUR) == 1

    assert await state_of(db, item_id) == "dead"


async def test_a_finished_item_does_not_expire(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, not_after=NOON + HOUR)
    await attempt_once(db, lane, Done())

    assert await expire(db, now=NOON + DAY) == 0

    assert await state_of(db, item_id) == "done"
