"""Rules are rows: limits of amounts, duplicates, opening hours; and slots, if the lane has them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, LiteralString

import msgspec
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from penstock.base.aio import spawn
from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments.errors import PaymentRefused
from penstock.domains.payments.payment import Draft, Scheduled, ScheduleResult
from penstock.domains.payments.schedule import admit
from penstock.domains.payments.steps import STEPS
from penstock.kernel.errors import SlotRefused
from penstock.kernel.lane import set_lane
from penstock.postgres.pool import Pool, connect
from tests.domains.payments.scene import Scene, a_payment, opened_payments
from tests.fault.waiting import until

PRODUCERS = 8
PATIENCE = 60.0
# Within the horizon of slots.
SOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2)
NO_DUPLICATES: LiteralString = (
    "INSERT INTO penstock.payment_rule (item_type, refuses_duplicates) VALUES ('PAYMENT', true)"
)


async def limit(scene: Scene, participant_id: str = "", **numbers: str) -> None:
    await scene.app.pool.execute(
        "INSERT INTO penstock.payment_limit"
        " VALUES ($1, 'EUR', $2::text::numeric, $3::text::numeric)",
        participant_id,
        numbers.get("amount_max"),
        numbers.get("day_amount_max"),
    )


async def calendar(scene: Scene, **fields: Any) -> None:
    given = {"timeZone": "Europe/Paris"} | fields
    await scene.app.pool.execute(
        "INSERT INTO penstock.payment_rule (item_type, calendar) VALUES ('PAYMENT', $1)",
        msgspec.json.encode(given).decode(),
    )


def rules_of(answers: list[ScheduleResult]) -> list[str]:
    return [each.rule if isinstance(each, PaymentRefused) else "-" for each in answers]


# --------------------------------------------------------------------------------------- limits


async def test_an_amount_over_the_limit_is_refused(scene: Scene) -> None:
    """That of the participant comes before that of all."""
    await limit(scene, amount_max="12.49")
    await limit(scene, "bob", amount_max="100")

    answers = await scene.payments.schedule_many(
        [a_payment("p-1"), a_payment("p-2", participant_id="bob"), a_payment("p-3", amount="12.49")]
    )

    assert rules_of(answers) == ["amount_max", "-", "-"]
    assert [row["payment_id"] for row in await scene.rows()] == ["p-2", "p-3"]


async def test_the_sum_of_a_day_counts_earlier_payments_and_those_of_the_batch(
    scene: Scene,
) -> None:
    await limit(scene, day_amount_max="30")
    await scene.payments.schedule(a_payment("p-0", amount="10"))

    answers = await scene.payments.schedule_many(
        [
            a_payment("p-1", amount="15"),
            a_payment("p-2", amount="6"),
            a_payment("p-3", amount="5"),
            a_payment("p-4", amount="30", participant_id="bob"),
            a_payment("p-5", amount="30", execute_at="2031-02-01T00:00:00Z"),
            a_payment("p-6", amount="1", currency="EUR"),
        ]
    )

    assert rules_of(answers) == ["-", "day_amount_max", "-", "-", "-", "day_amount_max"]


async def test_a_repeat_is_not_counted_and_a_cancelled_payment_is_given_back(scene: Scene) -> None:
    await limit(scene, day_amount_max="20")
    await scene.payments.schedule(a_payment("p-1"))

    again = await scene.payments.schedule(a_payment("p-1"))
    with pytest.raises(PaymentRefused, match="over 20 EUR"):
        await scene.payments.schedule(a_payment("p-2"))
    await scene.client.post("/payments/p-1/cancel")
    after = await scene.payments.schedule(a_payment("p-2"))

    assert (again.is_new, after.is_new) == (False, True)


async def test_what_is_asked_for_in_the_past_counts_on_the_day_of_its_execution(
    scene: Scene,
) -> None:
    """Each on a past day of its own, any sum could leave at once."""
    await limit(scene, day_amount_max="20")
    await scene.app.pool.execute(NO_DUPLICATES)
    past = [f"2020-01-0{day}T00:00:00Z" for day in (1, 2, 3)]

    answers = await scene.payments.schedule_many(
        [
            a_payment("p-1", amount="15", execute_at=past[0]),
            a_payment("p-2", amount="15", execute_at=past[1]),
            a_payment("p-3", amount="5", execute_at=past[2]),
            a_payment("p-4", amount="15", execute_at=None, participant_id="bob"),
            a_payment("p-5", amount="15", execute_at=past[0], participant_id="bob"),
        ]
    )

    assert rules_of(answers) == ["-", "day_amount_max", "-", "-", "day_amount_max"]


async def test_what_a_calendar_moves_counts_on_the_day_of_its_opening(scene: Scene) -> None:
    """Payments of a whole week leave together if only one day of it is open."""
    mondays = {"hours": [{"days": ["mon"], "opens": "09:00", "closes": "18:00"}]}
    await calendar(scene, **mondays)
    await scene.app.pool.execute("UPDATE penstock.payment_rule SET refuses_duplicates = true")
    await limit(scene, day_amount_max="20")
    asked = [f"2031-02-{day}T10:00:00Z" for day in ("04", "05", "06", "11")]

    answers = await scene.payments.schedule_many(
        [
            a_payment("p-1", amount="10", execute_at=asked[0]),
            a_payment("p-2", amount="10", execute_at=asked[1]),
            a_payment("p-3", amount="11", execute_at=asked[2]),
            a_payment("p-4", amount="10", execute_at=asked[3]),
        ]
    )

    assert rules_of(answers) == ["-", "duplicate", "day_amount_max", "-"]
    days = await scene.app.pool.fetch("SELECT day, amount FROM penstock.payment_day_total")
    assert {str(row["day"]): row["amount"] for row in days} == {"2031-02-10": 10, "2031-02-17": 10}


async def test_concurrent_producers_stay_within_the_sum_of_a_day(scene: Scene) -> None:
    """Each repeats the payments of another one, which count once."""
    await limit(scene, day_amount_max="100")
    batches = [
        [a_payment(f"p-{(producer // 2, number)}", amount="7") for number in range(5)]
        for producer in range(PRODUCERS)
    ]

    await asyncio.gather(*(scene.payments.schedule_many(each) for each in batches))

    assert len(await scene.rows()) == 100 // 7
    total = await scene.app.pool.fetchval("SELECT amount FROM penstock.payment_day_total")
    assert total == 98


async def test_of_two_equal_requests_at_once_both_get_the_first_answer(dsn: str) -> None:
    """The second one is counted already; refused, its caller would send it under another id."""
    both_looked_up = asyncio.Barrier(2)

    async def apply_rules(
        connection: object, drafts: Sequence[Draft], now: datetime
    ) -> Sequence[Draft | PenstockError]:
        await both_looked_up.wait()
        return await STEPS.apply_rules(connection, drafts, now)

    async with opened_payments(dsn, replace(STEPS, apply_rules=apply_rules)) as scene:
        await limit(scene, day_amount_max="20")
        answers = await asyncio.gather(*(scene.payments.schedule(a_payment()) for _ in range(2)))
        total = await scene.app.pool.fetchval("SELECT amount FROM penstock.payment_day_total")

    assert sorted(each.is_new for each in answers) == [False, True]
    assert total == Decimal("12.50")


# ----------------------------------------------------------------------------------- duplicates


async def test_the_same_content_on_the_same_day_is_refused(scene: Scene) -> None:
    """The second one under another id is often a mistake."""
    await scene.app.pool.execute(NO_DUPLICATES)

    answers = await scene.payments.schedule_many(
        [
            a_payment("p-1"),
            a_payment("p-2", execute_at="2031-01-31T23:00:00Z"),
            a_payment("p-3", execute_at="2031-02-01T00:00:00Z"),
            a_payment("p-4", amount="12.51"),
            a_payment("p-1"),
        ]
    )

    assert rules_of(answers) == ["-", "duplicate", "-", "-", "-"]


async def test_a_cancelled_payment_is_no_duplicate(scene: Scene) -> None:
    await scene.app.pool.execute(NO_DUPLICATES)
    await scene.payments.schedule(a_payment("p-1"))
    await scene.client.post("/payments/p-1/cancel")

    assert (await scene.payments.schedule(a_payment("p-2"))).is_new


async def test_of_concurrent_duplicates_one_is_scheduled(scene: Scene) -> None:
    await scene.app.pool.execute(NO_DUPLICATES)

    answered = await asyncio.gather(
        *(scene.payments.schedule_many([a_payment(f"p-{n}")]) for n in range(PRODUCERS))
    )

    answers = [answer for each in answered for answer in each]
    assert sum(isinstance(each, Scheduled) for each in answers) == 1
    assert len(await scene.rows()) == 1


# ---------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("asked", "scheduled"),
    [
        ("2031-01-31T14:00:00Z", "2031-01-31T14:00:00Z"),
        ("2031-01-31T05:00:00Z", "2031-01-31T08:00:00Z"),  # A Friday, before it opens.
        ("2031-01-31T15:30:00Z", "2031-02-03T08:00:00Z"),  # After the cut-off.
        ("2031-04-11T05:00:00Z", "2031-04-15T07:00:00Z"),  # Good Friday to Easter Monday.
    ],
)
async def test_a_payment_moves_to_the_next_opening(
    scene: Scene, asked: str, scheduled: str
) -> None:
    await calendar(
        scene,
        hours=[{"days": ["mon", "tue", "wed", "thu", "fri"], "opens": "09:00", "closes": "18:00"}],
        holidays=["TARGET2"],
        cutOff="16:00",
    )

    answer = await scene.payments.schedule(a_payment(execute_at=asked))

    assert answer.scheduled_at == datetime.fromisoformat(scheduled)
    (row,) = await scene.rows()
    assert row["execute_at"] == datetime.fromisoformat(asked)


async def test_a_calendar_that_never_opens_refuses_the_payment(scene: Scene) -> None:
    blackout = {"from": "2030-01-01T00:00:00Z", "until": "2040-01-01T00:00:00Z"}
    await calendar(scene, blackouts=[blackout])

    with pytest.raises(InvalidInput, match="has no opening"):
        await scene.payments.schedule(a_payment())

    assert await scene.rows() == []


async def test_a_calendar_that_moves_a_payment_out_of_range_refuses_that_payment(
    scene: Scene,
) -> None:
    """The database refused the whole batch, with an error that named no payment."""
    await calendar(scene, hours=[{"days": ["fri"], "opens": "09:00", "closes": "18:00"}])
    last = "2199-12-31T23:00:00Z"

    answers = await scene.payments.schedule_many(
        [a_payment("p-1"), a_payment("p-2", execute_at=last)]
    )

    assert isinstance(answers[1], InvalidInput)
    assert answers[1].field == "execute_at"
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1"]


OPEN_AGAIN = "2041-01-01T12:00:00Z"


@pytest.mark.parametrize("driver", ["none", "asyncpg", "psycopg", "sqlalchemy"])
async def test_one_payment_without_an_opening_costs_no_other(
    scene: Scene, dsn: str, driver: str
) -> None:
    """Each has its own answer, in an own transaction and in that of any caller."""
    blackout = {"from": "2030-01-01T00:00:00Z", "until": "2040-01-01T00:00:00Z"}
    await calendar(scene, blackouts=[blackout])
    given = [
        a_payment("p-1", execute_at=OPEN_AGAIN),
        a_payment("p-2"),
        a_payment("p-3", amount="0"),
        a_payment("p-4", execute_at=OPEN_AGAIN),
    ]

    async with connected(dsn, driver) as connection:
        answers = await scene.payments.schedule_many(given, connection=connection)
        visible = len(await scene.rows())

    first, closed, invalid, last = answers
    assert isinstance(first, Scheduled)
    assert isinstance(last, Scheduled)
    assert isinstance(closed, InvalidInput)
    assert (closed.field, "has no opening" in closed.reason) == ("execute_at", True)
    assert isinstance(invalid, InvalidInput)
    assert invalid.field == "amount"
    assert [row["payment_id"] for row in await scene.rows()] == ["p-1", "p-4"]
    assert len(await scene.items()) == 2
    assert visible == (2 if driver == "none" else 0)


async def test_a_refused_payment_leaves_nothing_in_the_transaction_of_its_caller(
    scene: Scene, dsn: str
) -> None:
    """The caller may go on and commit: no payment without an item may be left."""
    await limit(scene, day_amount_max="20")
    blackout = {"from": "2030-01-01T00:00:00Z", "until": "2040-01-01T00:00:00Z"}
    await calendar(scene, blackouts=[blackout])

    async with connected(dsn, "asyncpg") as connection:
        with pytest.raises(InvalidInput, match="has no opening"):
            await scene.payments.schedule(a_payment(), connection=connection)

    assert await scene.rows() == []


async def test_one_payment_without_a_slot_costs_no_other(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")

    far, near = await scene.payments.schedule_many([a_payment(), a_payment("p-2", execute_at=SOON)])

    assert isinstance(far, SlotRefused)
    assert isinstance(near, Scheduled)
    assert [row["payment_id"] for row in await scene.rows()] == ["p-2"]


@asynccontextmanager
async def connected(dsn: str, driver: str) -> AsyncGenerator[object]:
    """Yield a connection in a transaction of its own, which is committed at the end."""
    match driver:
        case "asyncpg":
            connection = await connect(dsn)
            async with connection.transaction():
                yield connection
            await connection.close()
        case "psycopg":
            async with await psycopg.AsyncConnection.connect(dsn) as psycopg_connection:
                yield psycopg_connection
        case "sqlalchemy":
            engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
            async with engine.begin() as sqlalchemy_connection:
                yield sqlalchemy_connection
            await engine.dispose()
        case _:
            yield None


async def test_a_slot_pool_of_the_lane_decides_about_the_instant(scene: Scene) -> None:
    """Payments asked for one instant get places under the pool's capacity."""
    async with scene.app.pool.acquire() as db:
        await set_lane(db, "payment", who="test", slot_pool="default")

    answers = await scene.payments.schedule_many(
        [a_payment(f"p-{n}", execute_at=SOON) for n in range(250)]
    )

    instants = [each.scheduled_at for each in answers if isinstance(each, Scheduled)]
    assert len(instants) == 250
    assert min(each for each in instants if each is not None) == SOON
    assert len(set(instants)) > 100
    rows = await scene.rows()
    due = await scene.app.pool.fetch("SELECT key, due_at FROM penstock.item")
    assert {row["payment_id"]: row["scheduled_at"] for row in rows} == {
        row["key"]: row["due_at"] for row in due
    }


async def test_cancelling_a_payment_while_it_is_completed_does_not_deadlock(scene: Scene) -> None:
    """Both lock the payment and the sum of its day; in another order one of them would fail."""
    await limit(scene, day_amount_max="1000")
    pool = scene.app.pool
    draft = STEPS.enrich(STEPS.validate(a_payment("p-1")))
    async with pool.acquire() as db, db.transaction():
        await admit(db, [draft], steps=STEPS, at=None)

    async with asyncio.TaskGroup() as group, pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM penstock.payment_day_total FOR UPDATE")
        both = [a_payment("p-1"), a_payment("p-2")]
        completing = spawn(group, scene.payments.schedule_many(both), name="complete")
        await until(lambda: are_blocked(pool, 1), within=PATIENCE)
        cancelling = spawn(group, scene.client.post("/payments/p-1/cancel"), name="cancel")
        await until(lambda: are_blocked(pool, 2), within=PATIENCE)

    assert all(isinstance(each, Scheduled) for each in completing.result()), completing.result()
    assert cancelling.result().status_code == 200, cancelling.result().text
    statuses = {row["payment_id"]: row["status"] for row in await scene.rows()}
    assert statuses == {"p-1": "CANCELLED", "p-2": "SCHEDULED"}
    assert await pool.fetchval("SELECT amount FROM penstock.payment_day_total") == Decimal("12.5")


async def are_blocked(pool: Pool, count: int) -> bool:
    """Return whether this many sessions of the database wait for a lock."""
    return count == await pool.fetchval(
        """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
        """
    )
