"""How an attempt ended is written once, under the lease that holds the item, or changes nothing."""

import json
from datetime import timedelta
from typing import NoReturn

import msgspec
import pytest

from penstock import Dead, Done, Hold, Retry, Snooze
from penstock.kernel.claim import Lease
from penstock.kernel.inspect import AttemptView, balance, read_attempts, read_item
from penstock.kernel.item import Ending, ItemId, Outcome, Returned
from penstock.kernel.lane import Lane, set_lane
from penstock.kernel.operate import reschedule
from penstock.kernel.settle import REASON_LENGTH_MAX, RESULT_LENGTH_MAX, Ended, settle
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import Connection
from tests.kernel.scene import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
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


async def only_attempt(db: Connection, item_id: ItemId) -> AttemptView:
    (attempt,) = await read_attempts(db, item_id)
    return attempt


async def settle_some(
    db: Connection, lane: Lane, lease: Lease, *, endings: dict[ItemId, Ending], closes: bool
) -> bool:
    ended = [
        Ended(claimed, endings[claimed.id], 5) for claimed in lease.items if claimed.id in endings
    ]
    async with db.transaction():
        settled = await settle(db, lane, lease, ended=ended, closes=closes, now=NOON)
    return settled is not None


# ------------------------------------------------------------------------------- every outcome


@pytest.mark.covers("E39", "E64")
async def test_done_ends_an_item_and_keeps_its_result(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Done({"reference": "r-1"}), now=NOON + SECOND)

    attempt = await only_attempt(db, item_id)
    assert (attempt.attempt, attempt.outcome, attempt.reason) == (1, "done", None)
    assert (attempt.claimed_at, attempt.settled_at) == (NOON, NOON + SECOND)
    assert attempt.duration_ms == 5
    assert json.loads(attempt.result or "") == {"reference": "r-1"}
    assert await state_of(db, item_id) == "done"
    assert await try_claim(db, lane, now=NOON + DAY) is None


@pytest.mark.covers("C19", "C20")
async def test_a_success_after_a_failure_leaves_no_error_behind(db: Connection, lane: Lane) -> None:
    """The last error of an item is that of its last attempt."""
    item_id = await put(db, lane)
    await end(db, lane, await take(db, lane), Retry("421"))
    assert (await only_attempt(db, item_id)).reason == "421"

    again = await take(db, lane, now=NOON + MINUTE)
    await end(db, lane, again, Done(), now=NOON + MINUTE + SECOND)

    assert (await state_of(db, item_id), await reason_of(db, item_id)) == ("done", None)
    attempts = await read_attempts(db, item_id)
    assert [each.reason for each in attempts] == ["421", None]
    assert [each.claimed_at for each in attempts] == [NOON, NOON + MINUTE]
    assert [each.settled_at for each in attempts] == [NOON, NOON + MINUTE + SECOND]


@pytest.mark.covers("A14", "A27", "A41", "B34", "C18", "C26", "E40", "E65")
async def test_a_retry_waits_for_the_backoff_and_keeps_the_item(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Retry("503"), now=NOON)

    attempt = await only_attempt(db, item_id)
    assert (attempt.outcome, attempt.reason, attempt.retry_at) == ("retry", "503", NOON + SECOND)
    assert await due_of(db, item_id) == NOON + SECOND
    assert ids(await try_claim(db, lane, now=NOON + SECOND / 2)) == []
    (claimed,) = (await take(db, lane, now=NOON + SECOND)).items
    assert (claimed.id, claimed.attempt) == (item_id, 1)


async def test_a_retry_may_name_its_own_wait(db: Connection, lane: Lane) -> None:
    """Retry-After: the receiver's delay takes precedence over the backoff."""
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Retry("429", after=HOUR))

    assert await due_of(db, item_id) == NOON + HOUR


async def test_a_snooze_comes_back_after_its_wait(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Snooze(MINUTE, "circuit open"))

    assert await due_of(db, item_id) == NOON + MINUTE
    assert await outcomes_of(db, item_id) == ["snooze"]


@pytest.mark.parametrize("ending", [Retry("503"), Snooze(SECOND, "circuit open")])
async def test_what_was_claimed_early_is_not_repeated_before_it_is_due(
    db: Connection, lane: Lane, ending: Ending
) -> None:
    """Due again after the wait, it would start before its time."""
    await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR)
    item_id = await put(db, lane, due_at=NOON)

    await end(db, lane, await take(db, lane, now=NOON - MINUTE), ending, now=NOON - MINUTE)

    assert await due_of(db, item_id) == NOON


@pytest.mark.parametrize("on_lost", ["retry", "hold"], ids=["lost", "never started"])
async def test_what_was_claimed_early_is_not_due_before_its_time_after_a_crash(
    db: Connection, lane: Lane, on_lost: str
) -> None:
    await set_lane(db, lane.name, who="test", pre_start_buffer=HOUR, on_lost=on_lost)
    item_id = await put(db, lane, due_at=NOON)
    await take(db, lane, now=NOON - 30 * MINUTE)

    await rescue(db, now=NOON - 10 * MINUTE)

    assert await state_of(db, item_id) == "scheduled"
    assert await due_of(db, item_id) == NOON


async def test_an_item_that_was_moved_forward_is_due_at_once_after_a_crash(
    db: Connection, lane: Lane
) -> None:
    """Its first due instant counts no more."""
    await set_lane(db, lane.name, who="test", pre_start_buffer=MINUTE)
    item_id = await put(db, lane, due_at=NOON + HOUR)
    await reschedule(db, item_id, NOON, who="test", reason="sooner")
    await take(db, lane, now=NOON)

    await rescue(db, now=NOON + 10 * MINUTE)

    assert await due_of(db, item_id) == NOON + 10 * MINUTE


async def test_a_held_item_waits_for_a_person(db: Connection, lane: Lane) -> None:
    """The result is unknown, so the item is not repeated."""
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Hold("no answer"))

    assert await state_of(db, item_id) == "held"
    assert await reason_of(db, item_id) == "no answer"
    assert await try_claim(db, lane, now=NOON + 100 * DAY) is None


@pytest.mark.covers("E41")
async def test_a_dead_item_is_a_dead_letter(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Dead("404", result={"status": 404}))

    assert (await state_of(db, item_id), await reason_of(db, item_id)) == ("dead", "404")
    assert json.loads((await only_attempt(db, item_id)).result or "") == {"status": 404}


async def test_a_returned_item_is_as_if_never_claimed(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON - HOUR)

    await end(db, lane, await take(db, lane), Returned())

    (claimed,) = (await take(db, lane)).items
    assert (claimed.id, claimed.attempt, claimed.due_at) == (item_id, 0, NOON - HOUR)
    assert await outcomes_of(db, item_id) == []


@pytest.mark.covers("A27")
async def test_one_batch_may_end_in_every_way(db: Connection, lane: Lane) -> None:
    endings: list[Ending] = [Done(), Retry("r"), Snooze(SECOND), Hold("h"), Dead("d"), Returned()]
    items = [await put(db, lane, n) for n in range(len(endings))]
    lease = await take(db, lane)

    assert await settle_some(
        db, lane, lease, endings=dict(zip(items, endings, strict=True)), closes=True
    )

    states = [await state_of(db, item_id) for item_id in items]
    assert states == ["done", "scheduled", "scheduled", "held", "dead", "scheduled"]
    assert (await balance(db)).is_even


# -------------------------------------------------------------------------------------- the fence


@pytest.mark.covers("A36", "E74")
async def test_a_late_result_is_kept_as_late_and_changes_nothing(
    db: Connection, lane: Lane
) -> None:
    """A worker that stalled past its lease must not overwrite the attempt that replaced it."""
    item_id = await put(db, lane)
    stalled = await take(db, lane)
    await rescue(db, now=NOON + lane.lease)
    current = await take(db, lane, now=NOON + lane.lease)

    was_ours = await end(db, lane, stalled, Done({"reference": "b-7"}), now=NOON + MINUTE)

    assert not was_ours
    assert await state_of(db, item_id) == "leased"
    assert await outcomes_of(db, item_id) == ["lost", "late: done"]
    *_, late = await read_attempts(db, item_id)
    assert late.result == '{"reference": "b-7"}', "it may answer whether the item was paid"
    assert await end(db, lane, current, Retry("no"), now=NOON + MINUTE)
    assert (await balance(db)).is_even


@pytest.mark.covers("A16")
async def test_a_late_result_of_an_item_that_is_done_changes_nothing(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane)
    stalled = await take(db, lane)
    await rescue(db, now=NOON + lane.lease)
    await end(db, lane, await take(db, lane, now=NOON + MINUTE), Done(), now=NOON + MINUTE)

    assert not await end(db, lane, stalled, Dead("late"), now=NOON + HOUR)

    assert await state_of(db, item_id) == "done"
    assert await outcomes_of(db, item_id) == ["lost", "done", "late: dead"]
    assert (await balance(db)).is_even


async def test_a_late_return_leaves_no_trace(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)
    stalled = await take(db, lane)
    await rescue(db, now=NOON + lane.lease)

    assert not await end(db, lane, stalled, Returned())

    assert await outcomes_of(db, item_id) == ["lost"]
    assert (await balance(db)).ready == 1


async def test_a_partial_settle_leaves_the_rest_in_the_lease(db: Connection, lane: Lane) -> None:
    """A quick item must not wait for a slow one of its batch, nor free it."""
    quick, slow = await put(db, lane, 1), await put(db, lane, 2)
    lease = await take(db, lane)

    assert await settle_some(db, lane, lease, endings={quick: Done()}, closes=False)

    assert await db.fetchval("SELECT item_ids FROM penstock.lease") == [slow]
    assert (await state_of(db, quick), await state_of(db, slow)) == ("done", "leased")
    assert await settle_some(db, lane, lease, endings={slow: Done()}, closes=True)
    assert await db.fetchval("SELECT count(*) FROM penstock.lease") == 0


async def test_only_what_is_left_of_a_lease_is_lost_with_it(db: Connection, lane: Lane) -> None:
    quick, slow = await put(db, lane, 1), await put(db, lane, 2)
    lease = await take(db, lane)
    await settle_some(db, lane, lease, endings={quick: Done()}, closes=False)

    assert await rescue(db, now=NOON + lane.lease) == 1

    assert await outcomes_of(db, quick) == ["done"]
    assert await outcomes_of(db, slow) == ["lost"]


async def test_a_repeated_settle_is_harmless(db: Connection, lane: Lane) -> None:
    """The commit succeeded and its answer was lost; the worker cannot know that and repeats it."""
    item_id = await put(db, lane)
    lease = await take(db, lane)
    assert await end(db, lane, lease, Retry("503"))

    assert not await end(db, lane, lease, Retry("503"))

    assert await outcomes_of(db, item_id) == ["retry"]
    assert (await balance(db)).ready == 1


@pytest.mark.parametrize("ending", [Done(), Retry("r"), Hold("h"), Dead("d"), Returned()])
async def test_a_repeated_partial_settle_is_harmless(
    db: Connection, lane: Lane, ending: Ending
) -> None:
    """As above while the lease lives on: what was settled before must not be settled again."""
    quick, slow = await put(db, lane, 1), await put(db, lane, 2)
    lease = await take(db, lane)
    assert await settle_some(db, lane, lease, endings={quick: ending}, closes=False)

    await settle_some(db, lane, lease, endings={quick: ending}, closes=False)
    await settle_some(db, lane, lease, endings={quick: ending, slow: Done()}, closes=True)

    expected = [] if isinstance(ending, Returned) else [type(ending).__name__.lower()]
    assert await outcomes_of(db, quick) == expected
    assert await outcomes_of(db, slow) == ["done"]
    assert (await balance(db)).is_even


async def test_a_repeated_partial_settle_does_not_take_an_item_from_its_next_holder(
    db: Connection, lane: Lane
) -> None:
    quick, slow = await put(db, lane, 1), await put(db, lane, 2)
    lease = await take(db, lane)
    await settle_some(db, lane, lease, endings={quick: Returned()}, closes=False)
    assert ids(await try_claim(db, lane)) == [quick]

    await settle_some(db, lane, lease, endings={quick: Returned(), slow: Done()}, closes=True)

    assert await state_of(db, quick) == "leased"
    assert (await balance(db)).is_even


# ---------------------------------------------------------------- handlers are not trusted

ABSURD = timedelta.max


class Mute(Exception):
    """An exception that expects an argument, and was raised without one."""

    def __str__(self) -> str:
        return str(self.args[0])


class Broken(dict[str, object]):
    """A result that cannot be read."""

    def items(self) -> NoReturn:
        raise RuntimeError("broken")

    def __iter__(self) -> NoReturn:
        raise RuntimeError("broken")


GARBAGE: dict[str, tuple[Outcome, str]] = {
    "reason with NUL": (Retry("a\x00b"), "retry"),
    "reason with a lone surrogate": (Dead("\ud800"), "dead"),
    "reason far too long": (Hold("x" * 1_000_000), "hold"),
    "reason no text": (Retry(ValueError("boom")), "retry"),  # pyright: ignore[reportArgumentType]
    "reason without a text": (Retry(Mute()), "retry"),  # pyright: ignore[reportArgumentType]
    "reason missing": (Dead(None), "dead"),  # pyright: ignore[reportArgumentType]
    "result without JSON": (Done(object()), "done"),
    "result with an attribute that raises": (Done(Broken()), "done"),
    "result of raw bytes that are no JSON": (Done(msgspec.Raw(b"{")), "done"),
    "result with NUL": (Done({"a\x00": "b\x00"}), "done"),
    "result with a lone surrogate": (Done("\ud800"), "done"),
    "result not a number": (Done([float("nan"), float("inf")]), "done"),
    "result far too long": (Done("x" * 1_000_000), "done"),
    "result a huge number": (Done(10**400), "done"),
    "wait for ever": (Retry("r", after=ABSURD), "retry"),
    "snooze for ever": (Snooze(ABSURD), "snooze"),
    "wait into the past": (Retry("r", after=timedelta.min), "retry"),
    "wait a bare number": (Snooze(5), "snooze"),  # pyright: ignore[reportArgumentType]
    "wait a text": (Retry("r", after="5"), "retry"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("has_deadline", [False, True])
async def test_invalid_values_from_a_handler_never_break_a_batch(
    db: Connection, lane: Lane, has_deadline: bool
) -> None:
    """A settle that fails is repeated for ever, and takes the healthy items of its batch along."""
    not_after = NOON + DAY if has_deadline else None
    broken: list[str] = []

    for case, (ending, outcome) in GARBAGE.items():
        odd = await put(db, lane, not_after=not_after)
        healthy = await put(db, lane)
        lease = await take(db, lane)
        try:
            await settle_some(db, lane, lease, endings={odd: ending, healthy: Done()}, closes=True)
        except Exception as failure:  # noqa: BLE001  Each is one more broken case.
            broken.append(f"{case}: {failure!r:.100}")
            await end(db, lane, lease, Done())
            continue
        (written,) = await outcomes_of(db, odd)
        # A wait for ever is after any deadline, and so is a death.
        if written not in ({outcome, "dead"} if has_deadline else {outcome}):
            broken.append(f"{case}: recorded as {written}")
        if await outcomes_of(db, healthy) != ["done"]:
            broken.append(f"{case}: the other item suffered")
        await db.execute("DELETE FROM penstock.ready")

    assert broken == []


async def test_a_result_that_cannot_be_stored_is_replaced_by_a_note(
    db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Done("x" * (RESULT_LENGTH_MAX + 1)))

    assert "too long" in ((await only_attempt(db, item_id)).result or "")


@pytest.mark.covers("C16")
async def test_a_long_reason_is_cut(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await end(db, lane, await take(db, lane), Dead("x" * 5_000))

    found = await read_item(db, item_id)
    assert found is not None
    assert len(found.reason or "") == REASON_LENGTH_MAX
