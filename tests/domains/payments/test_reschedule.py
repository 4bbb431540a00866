"""A rescheduled payment goes through rules, calendar and slot pool, as a new one does."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from httpx import Response
from msgspec.structs import replace as msgspec_replace

from penstock.domains.payments.errors import PaymentRefused
from penstock.domains.payments.payment import Draft
from penstock.domains.payments.steps import STEPS
from penstock.domains.slots.config import set_config
from penstock.domains.slots.reflow import reflow
from penstock.kernel.item import ItemId
from penstock.kernel.lane import set_lane
from penstock.kernel.operate import hold
from tests.api.scene import problem
from tests.domains.payments.scene import AT_FOUR, Json, Scene, a_payment, opened_payments
from tests.domains.payments.test_rules import NO_DUPLICATES, calendar, limit

NEXT_DAY = "2031-02-01T16:00:00Z"
OPEN_ON_WEEKDAYS: Json = {
    "hours": [{"days": ["mon", "tue", "wed", "thu", "fri"], "opens": "09:00", "closes": "18:00"}]
}
# Within the horizon of slots.
SOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2)
PAIRS = 8
HOUR = timedelta(hours=1)


async def reschedule(scene: Scene, payment_id: str, execute_at: str | datetime) -> Response:
    given = execute_at if isinstance(execute_at, str) else execute_at.isoformat()
    return await scene.client.post(f"/payments/{payment_id}/reschedule", json={"execute_at": given})


async def rescheduled(scene: Scene, payment_id: str, execute_at: str | datetime) -> Json:
    response = await reschedule(scene, payment_id, execute_at)
    assert response.status_code == 200, response.text
    return response.json()


async def day_totals(scene: Scene) -> dict[date, Decimal]:
    rows = await scene.app.pool.fetch("SELECT day, amount FROM penstock.payment_day_total")
    return {row["day"]: row["amount"] for row in rows}


async def slots(scene: Scene) -> list[tuple[str, datetime]]:
    rows = await scene.app.pool.fetch("SELECT event_id, scheduled_at FROM penstock.slot")
    return [(row["event_id"], row["scheduled_at"]) for row in rows]


# ---------------------------------------------------------------------------- calendar and slots


async def test_a_payment_moves_to_an_opening(scene: Scene) -> None:
    """The rail is closed when the calendar says so, whoever asks."""
    await calendar(scene, **OPEN_ON_WEEKDAYS)
    await scene.post(execute_at="2031-01-31T14:00:00Z")

    moved = await rescheduled(scene, "p-1", NEXT_DAY)  # A Saturday.

    assert moved["payment"]["execute_at"] == NEXT_DAY
    assert moved["payment"]["scheduled_at"] == "2031-02-03T08:00:00Z"
    assert moved["item"]["due_at"] == "2031-02-03T08:00:00Z"


async def test_a_payment_for_a_past_instant_waits_for_the_next_opening(scene: Scene) -> None:
    """That it was open then does not make it open now."""
    now = datetime.now(UTC)
    opens_at = (now + timedelta(days=1)).replace(microsecond=0)
    closed = {"from": (now - timedelta(days=1)).isoformat(), "until": opens_at.isoformat()}
    await calendar(scene, blackouts=[closed])

    scheduled = await scene.payments.schedule(a_payment("p-1", execute_at=now - timedelta(days=2)))
    await scene.post("p-2")
    moved = await rescheduled(scene, "p-2", now - timedelta(days=2))

    assert scheduled.scheduled_at == opens_at
    assert datetime.fromisoformat(moved["payment"]["scheduled_at"]) == opens_at


async def test_a_payment_takes_another_slot_and_gives_the_first_one_back(scene: Scene) -> None:
    """A slot that stayed booked would be missing for others."""
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")
    await scene.post("p-1", execute_at=SOON.isoformat())
    await scene.post("p-2", execute_at=SOON.isoformat())

    moved = await rescheduled(scene, "p-1", SOON + timedelta(hours=1))
    third = await scene.payments.schedule(a_payment("p-3", execute_at=SOON))

    at = SOON + timedelta(hours=1)
    assert datetime.fromisoformat(moved["payment"]["scheduled_at"]) == at
    assert (f"item:{moved['item']['id']}", at) in await slots(scene)
    assert len(await slots(scene)) == 3
    assert third.scheduled_at == SOON, "the place that p-1 had"


async def test_a_reflow_of_slots_moves_the_instants_of_payments(scene: Scene) -> None:
    """What a payment says about its instant is what its item and its slot say."""
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")
        for number in range(1, 5):
            await scene.post(f"p-{number}", execute_at=SOON.isoformat())
        await hold_payment(scene, "p-4")
        await set_config(db, "default", who="test", max_per_window=1, window_size=HOUR)

        done = await reflow(
            db, "default", freeze_until=datetime.now(UTC), who="test", is_dry_run=False
        )

    assert done.moved == 3
    shown = [(await scene.client.get(f"/payments/p-{n}")).json() for n in range(1, 5)]
    instants = [datetime.fromisoformat(each["payment"]["scheduled_at"]) for each in shown]
    assert instants == [SOON + n * HOUR for n in range(4)]
    assert dict(await slots(scene)) == {
        f"item:{each['item']['id']}": at for each, at in zip(shown, instants, strict=True)
    }
    assert [each["item"]["due_at"] for each in shown[:3]] == [
        each["payment"]["scheduled_at"] for each in shown[:3]
    ]
    later = await scene.client.get("/payments", params={"from": (SOON + HOUR).isoformat()})
    assert len(later.json()["payments"]) == 3


async def hold_payment(scene: Scene, payment_id: str) -> None:
    """Hold the item of a payment, as an operator does."""
    ids = {row["payment_id"]: ItemId(row["item_id"]) for row in await scene.rows()}
    async with scene.app.pool.acquire() as db:
        await hold(db, ids[payment_id], who="ann", reason="fraud?")


async def test_without_a_slot_the_payment_keeps_the_one_it_has(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")
    await scene.post(execute_at=SOON.isoformat())
    before = await slots(scene)

    refused = await reschedule(scene, "p-1", AT_FOUR)

    assert problem(refused, 409, "slot-refused")["reason"] == "beyond_horizon"
    assert await slots(scene) == before
    (row,) = await scene.rows()
    assert row["execute_at"] == row["scheduled_at"] == SOON


async def test_a_lane_without_its_pool_takes_no_slot(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")
        await scene.post(execute_at=SOON.isoformat())
        await set_lane(db, "payment", who="test", slot_pool=None)

    moved = await rescheduled(scene, "p-1", AT_FOUR)

    assert datetime.fromisoformat(moved["item"]["due_at"]) == AT_FOUR
    assert await slots(scene) == []


# ----------------------------------------------------------------------------------------- rules


async def test_the_sum_of_a_day_moves_with_the_payment(scene: Scene) -> None:
    """What leaves a day makes room there, and is in the way on the other one."""
    await limit(scene, day_amount_max="20")
    await scene.post("p-1")

    await rescheduled(scene, "p-1", NEXT_DAY)
    await scene.payments.schedule(a_payment("p-2"))
    with pytest.raises(PaymentRefused, match="over 20 EUR"):
        await scene.payments.schedule(a_payment("p-3", execute_at=NEXT_DAY))
    totals = await day_totals(scene)
    await scene.client.post("/payments/p-1/cancel")

    assert totals == {date(2031, 1, 31): Decimal("12.5"), date(2031, 2, 1): Decimal("12.5")}
    assert await day_totals(scene) == totals | {date(2031, 2, 1): Decimal(0)}


async def test_a_full_day_refuses_a_payment_which_stays_where_it_is(scene: Scene) -> None:
    await limit(scene, day_amount_max="20")
    await scene.post("p-1")
    await scene.post("p-2", execute_at=NEXT_DAY)

    refused = await reschedule(scene, "p-1", NEXT_DAY)

    assert problem(refused, 409, "payment-refused")["rule"] == "day_amount_max"
    assert set((await day_totals(scene)).values()) == {Decimal("12.5")}
    first, _ = await scene.rows()
    assert (first["execute_at"], first["scheduled_at"]) == (AT_FOUR, AT_FOUR)


async def test_another_hour_of_the_same_day_is_not_counted_twice(scene: Scene) -> None:
    await limit(scene, day_amount_max="20")
    await scene.post()

    await rescheduled(scene, "p-1", "2031-01-31T17:00:00Z")

    assert await day_totals(scene) == {date(2031, 1, 31): Decimal("12.5")}


async def test_a_payment_from_before_the_limit_is_in_no_sum(scene: Scene) -> None:
    """Taken out of a sum that it was never in, it would leave room for too much."""
    await scene.post("p-1")
    await scene.post("p-2")
    await limit(scene, day_amount_max="20")
    await scene.post("p-3")

    await scene.client.post("/payments/p-1/cancel")
    await rescheduled(scene, "p-2", NEXT_DAY)

    assert await day_totals(scene) == {
        date(2031, 1, 31): Decimal("12.5"), date(2031, 2, 1): Decimal("12.5")
    }  # fmt: skip


async def test_a_duplicate_on_the_new_day_is_refused_and_the_old_day_is_free(scene: Scene) -> None:
    await scene.app.pool.execute(NO_DUPLICATES)
    await scene.post("p-1")
    await scene.post("p-2", execute_at=NEXT_DAY)

    refused = await reschedule(scene, "p-1", NEXT_DAY)
    await rescheduled(scene, "p-1", "2031-02-02T16:00:00Z")
    again = await scene.payments.schedule(a_payment("p-3"))
    with pytest.raises(PaymentRefused, match="'p-1' has the same content"):
        await scene.payments.schedule(a_payment("p-4", execute_at="2031-02-02T17:00:00Z"))

    assert problem(refused, 409, "payment-refused")["rule"] == "duplicate"
    assert again.is_new


async def test_payments_that_change_places_all_move(scene: Scene) -> None:
    """Each locks the sums of two days; in the order of need they would deadlock."""
    await limit(scene, day_amount_max="1000")
    days = [AT_FOUR, AT_FOUR + timedelta(days=1)]
    for number in range(2 * PAIRS):
        await scene.post(f"p-{number}", execute_at=days[number % 2].isoformat())
    before = await day_totals(scene)

    answers = await asyncio.gather(
        *(reschedule(scene, f"p-{n}", days[(n + 1) % 2]) for n in range(2 * PAIRS)),
        scene.payments.schedule_many([a_payment("p-x"), a_payment("p-y", execute_at=NEXT_DAY)]),
    )

    assert {each.status_code for each in answers if isinstance(each, Response)} == {200}
    assert await day_totals(scene) == {
        day: total + Decimal("12.5") for day, total in before.items()
    }


async def test_steps_of_your_own_decide_about_a_rescheduled_payment_too(dsn: str) -> None:
    async def at_noon(_connection: object, drafts: Sequence[Draft], _now: datetime) -> Any:
        noon = datetime(2031, 3, 1, 12, tzinfo=UTC)
        return [msgspec_replace(each, scheduled_at=noon) for each in drafts]

    async with opened_payments(dsn, steps=replace(STEPS, determine_times=at_noon)) as scene:
        await scene.post()

        moved = await rescheduled(scene, "p-1", NEXT_DAY)

    assert moved["payment"]["scheduled_at"] == "2031-03-01T12:00:00Z"


async def test_payments_that_move_to_past_days_count_on_the_day_of_their_execution(
    scene: Scene,
) -> None:
    """They are executed at once, all of them, whatever day was asked for."""
    await limit(scene, day_amount_max="20")
    await scene.app.pool.execute(NO_DUPLICATES)
    for number in (1, 2):
        day = f"2031-03-0{number}T16:00:00Z"
        await scene.payments.schedule(a_payment(f"p-{number}", execute_at=day))

    first = await reschedule(scene, "p-1", "2020-01-01T00:00:00Z")
    second = await reschedule(scene, "p-2", "2020-01-02T00:00:00Z")

    assert (first.status_code, second.status_code) == (200, 409)
    fingerprints = "SELECT payment_id FROM penstock.payment_fingerprint ORDER BY payment_id"
    kept = [row["payment_id"] for row in await scene.app.pool.fetch(fingerprints)]
    assert kept == ["p-1", "p-2"]
