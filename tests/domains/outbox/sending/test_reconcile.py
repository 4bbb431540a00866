"""Instructions that may have been paid: what the rail, a late result and the clock decide."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from penstock.base.aio import spawn
from penstock.base.clock import FakeClock
from penstock.base.settings import settings
from penstock.domains.outbox.earlier_calls import Paid
from penstock.domains.outbox.ending import RailEnding
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lookup import claim_lookups, find_unknown
from penstock.domains.outbox.rails.rail import (
    LoadedRail,
    QueryResult,
    Rail,
    RailAnswer,
    RailProperties,
    SendResult,
)
from penstock.domains.outbox.reconcile.reconciler import INTERVAL
from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.item import Done, Hold, ItemId, Outcome, Retry, Snooze
from penstock.kernel.lane import read_lane
from penstock.kernel.operate import hold, release
from penstock.kernel.settle import Ended, settle
from penstock.kernel.sweep import SWEEP_INTERVAL
from penstock.postgres.clock import DatabaseClock
from penstock.postgres.pool import Pool
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox, opened_outbox
from tests.domains.outbox.sending.test_results import report
from tests.fault.waiting import until

DAY = timedelta(days=1)
HEALED_WITHIN = timedelta(seconds=120)


@dataclass(slots=True)
class ReadRails:
    """Rails that need a connection of the pool to find one, as they do after a change."""

    rail: LoadedRail
    pool: Pool | None = None

    async def find(self, rail_type: str) -> LoadedRail | None:
        assert self.pool is not None
        async with self.pool.acquire():
            return self.rail if rail_type == self.rail.rail_type else None


async def settle_late(outbox: Outbox, token: int, outcome: Outcome) -> None:
    """Return as a worker that comes back after the lease of the only item has expired."""
    async with outbox.app.pool.acquire() as db, db.transaction():
        item_id = await db.fetchval("SELECT item_id FROM penstock.outbox_instruction")
        claimed = Claimed(
            id=ItemId(item_id),
            due_at=outbox.clock.now(),
            attempt=0,
            forgiven=0,
            key=None,
            order_key="p1",
            not_after=None,
            payload="{}",
            start_in=0,
        )
        lease = Lease(token=token, claimed_at=outbox.clock.now(), items=[claimed])
        lane = await read_lane(db, "penstock.outbox")
        ended = [Ended(claimed, outcome, 1)]
        assert await settle(db, lane, lease, ended=ended, closes=True) is None


@pytest.mark.covers("E43", "E44", "E47", "E66", "E78")
async def test_what_a_dead_worker_paid_is_healed_within_120_seconds(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The crash comes right after a renewal; lease, sweep and the reconciler's interval add up."""
    outbox_id = await outbox.send()
    crashed_at = outbox.clock.now()
    await outbox.lose()
    ledger.bookings.append("i1")
    ledger.statuses["i1"] = "PAID"
    lane = await read_lane(outbox.app.pool, "penstock.outbox")

    await outbox.sweep(seconds=(lane.lease + SWEEP_INTERVAL).total_seconds())
    await outbox.reconcile(seconds=INTERVAL.total_seconds())

    assert outbox.clock.now() - crashed_at <= HEALED_WITHIN
    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    assert await outbox.item_state(outbox_id) == "done"
    assert ledger.bookings == ["i1"]
    assert [each.type for each in outbox.events] == ["outbox.unknown", "outbox.dispatched"]
    assert not outbox.events[-1].is_pending


@pytest.mark.covers("E45", "E46", "E73")
async def test_what_a_dead_worker_did_not_send_is_sent_within_120_seconds(
    outbox: Outbox, ledger: Ledger
) -> None:
    """That it is not found proves something only after the last call that may be on its way."""
    outbox_id = await outbox.send()
    crashed_at = outbox.clock.now()
    await outbox.lose()

    await outbox.sweep(seconds=65)
    while await outbox.states(outbox_id) != ["UNKNOWN", "ZOMBIE_REQUEUE"]:
        await outbox.reconcile(seconds=INTERVAL.total_seconds())
    await outbox.run()

    assert outbox.clock.now() - crashed_at <= HEALED_WITHIN
    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]
    assert ledger.bookings == ["i1"]
    assert [kind for kind, _ in ledger.calls][-2:] == ["query", "send"]
    row = (await outbox.rows(outbox_id))[1]
    assert (row["who"], row["error_code"]) == ("penstock.reconcile", "NOT_FOUND")


async def test_not_found_decides_nothing_before_it_is_final(outbox: Outbox) -> None:
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(seconds=65)

    await outbox.reconcile(seconds=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert await outbox.item_state(outbox_id) == "held"


async def test_a_lost_reply_is_found_by_a_query(outbox: Outbox, ledger: Ledger) -> None:
    ledger.orders += ["lose"]
    outbox_id = await outbox.send("i1")
    follower = await outbox.send("i2")
    await outbox.run()

    await outbox.reconcile(seconds=1)
    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    assert await outbox.states(follower) == ["DISPATCHED"]
    assert ledger.bookings == ["i1", "i2"]
    (row,) = (await outbox.rows(outbox_id))[1:]
    assert (row["rail_reference"], row["who"]) == ("ref-i1", "penstock.reconcile")


async def test_a_refusal_that_was_lost_ends_as_failed(outbox: Outbox, ledger: Ledger) -> None:
    ledger.orders += ["drop"]
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.statuses["i1"] = "REJECTED"

    await outbox.reconcile(seconds=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED"]
    assert await outbox.item_state(outbox_id) == "dead"


async def test_a_rail_that_recognises_keys_gets_the_same_key_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.recognises_keys = True
    ledger.orders += ["lose"]
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY)
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.reconcile(seconds=1)
    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]
    assert ledger.bookings == ["i1"]
    assert ledger.count("send") == 2


@pytest.mark.parametrize("late", [DAY - timedelta(seconds=29), timedelta(days=3)])
async def test_a_key_that_may_be_forgotten_is_not_sent_again(
    outbox: Outbox, ledger: Ledger, late: timedelta
) -> None:
    """The call must arrive while the rail recognises the key; the timeout is 30 s."""
    ledger.orders += ["lose"]
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY)
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.reconcile(seconds=late.total_seconds())

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert await outbox.item_state(outbox_id) == "held"
    assert await outbox.app.pool.fetchval("SELECT left_at IS NOT NULL FROM penstock.outbox_lookup")


async def test_a_rail_that_promises_nothing_is_left_to_a_person(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["lose"]
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    await outbox.run()

    for _ in range(10):
        await outbox.reconcile(hours=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert ledger.count("send") == 1


@pytest.mark.parametrize("answer", ["BUSY", "NEVER_HEARD_OF"])
async def test_a_vague_answer_to_a_repeated_key_leaves_the_doubt(
    outbox: Outbox, ledger: Ledger, answer: str
) -> None:
    """A rail may say BUSY before it looks at the key; as a failure it would lose the payment."""
    ledger.recognises_keys = True
    ledger.orders += ["lose", *[answer] * 6]
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY)
    outbox_id = await outbox.send()
    await outbox.run()

    for _ in range(20):
        await outbox.reconcile(minutes=10)
        await outbox.run()

    states = await outbox.states(outbox_id)
    assert "FAILED" not in states
    assert states[-1] == "DISPATCHED"
    assert ledger.bookings == ["i1"]


async def test_an_instruction_that_is_repeated_in_vain_is_asked_about_less_and_less(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["IN_PROGRESS"] * 100
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY)
    await outbox.send()
    await outbox.run()

    for _ in range(60):
        await outbox.reconcile(seconds=1)
        await outbox.run()

    assert ledger.count("send") <= 5


async def test_a_silent_rail_is_asked_again_until_it_answers(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["lose"]
    ledger.is_silent = True
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)
    await outbox.reconcile(seconds=1)
    assert ledger.count("query") == 1, "not before its wait is over"

    ledger.is_silent = False
    await outbox.reconcile(minutes=5)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]


async def test_another_amount_is_left_to_a_person(outbox: Outbox, ledger: Ledger) -> None:
    ledger.orders += ["lose"]
    ledger.amount = "99.00"
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.reconcile(seconds=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert await outbox.app.pool.fetchval("SELECT left_at IS NOT NULL FROM penstock.outbox_lookup")


async def test_a_late_result_decides_before_the_rail_is_asked(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A worker that was cut off from the database has the answer of a rail that answers none."""
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    ending = RailEnding(state="DISPATCHED", called=True, rail_code="PAID", rail_reference="r9")
    await settle_late(outbox, token, Done(ending))

    await outbox.reconcile(seconds=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    assert (await outbox.rows(outbox_id))[1]["rail_reference"] == "r9"
    assert ledger.calls == []


@pytest.mark.parametrize(
    ("late", "states"),
    [
        (Snooze(timedelta(seconds=1)), ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]),
        (
            Retry("x", result=RailEnding(state="RETRYABLE", called=True, rail_code="BUSY")),
            ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"],
        ),
        (Hold("unknown: x", RailEnding(state="UNKNOWN", called=True)), ["UNKNOWN"]),
    ],
    ids=["no call", "refused", "unknown"],
)
@pytest.mark.covers("E74")
async def test_a_worker_that_made_no_call_says_so_late(
    outbox: Outbox, ledger: Ledger, *, late: Outcome, states: list[str]
) -> None:
    """After a pause past its lease it does not call; nobody else can know that."""
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    await settle_late(outbox, token, late)

    await outbox.reconcile(seconds=1)
    await outbox.run()

    assert await outbox.states(outbox_id) == states


async def test_an_instruction_released_by_an_operator_is_looked_up_before_it_is_sent(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A release without a look at the rail must not pay a second time."""
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    item_id = await outbox.app.pool.fetchval("SELECT id FROM penstock.held")
    async with outbox.app.pool.acquire() as db:
        await release(db, item_id, who="ann", reason="x", owner="outbox", now=outbox.clock.now())

    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    assert ledger.bookings == ["i1"]


async def test_processes_side_by_side_decide_each_once(outbox: Outbox, ledger: Ledger) -> None:
    ids = [await outbox.send(f"i{number}", participant=f"p{number}") for number in range(20)]
    ledger.orders += ["lose"] * 20
    await outbox.run()

    await asyncio.gather(*[outbox.reconciler.run_once() for _ in range(4)])
    await outbox.reconcile(seconds=1)

    for each in ids:
        assert await outbox.states(each) == ["UNKNOWN", "DISPATCHED"]
    assert ledger.paid_twice == []


async def test_a_lost_attempt_is_archived_as_unknown_once(outbox: Outbox, ledger: Ledger) -> None:
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(seconds=65)

    for _ in range(3):
        await asyncio.gather(*[outbox.reconciler.run_once() for _ in range(3)])

    (row,) = await outbox.rows(outbox_id)
    assert (row["state"], row["error_code"], row["attempt_no"]) == ("UNKNOWN", "LOST", 1)


async def test_what_others_hold_is_left_alone(outbox: Outbox) -> None:
    outbox_id = await outbox.send()
    item_id = await outbox.app.pool.fetchval("SELECT id FROM penstock.ready")
    async with outbox.app.pool.acquire() as db:
        await hold(db, item_id, who="ann", reason="lost", owner="outbox")

    assert await outbox.reconcile(seconds=1) == 0

    assert await outbox.item_state(outbox_id) == "held"
    assert await outbox.states(outbox_id) == []


async def test_an_asynchronous_rail_is_asked_until_it_settles(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["accept"]
    outbox_id = await outbox.send()
    await outbox.run()
    assert await outbox.states(outbox_id) == ["DISPATCHED"]
    await outbox.reconcile(minutes=1)
    assert await outbox.states(outbox_id) == ["DISPATCHED"]

    ledger.statuses["i1"] = "SETTLED"
    await outbox.reconcile(days=2)

    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED"]
    assert await outbox.reconcile(days=1) == 0, "a settled one is asked about no more"


async def test_more_instructions_settle_than_the_pool_has_connections(
    dsn: str, clock: FakeClock, ledger: Ledger
) -> None:
    """Each lookup holds a connection to write, and needs one more to look its rail up."""
    rails = ReadRails(loaded(ledger.port, can_query=True))
    async with opened_outbox(dsn, clock, rails) as outbox:
        rails.pool = outbox.app.pool
        count = 2 * settings().pool_size_max
        ledger.orders += ["accept"] * count
        sent = [await outbox.send(f"i{place}", participant=f"p{place}") for place in range(count)]
        await outbox.run()
        ledger.statuses |= {f"i{place}": "SETTLED" for place in range(count)}

        async with asyncio.timeout(30):
            await outbox.reconcile(days=2)

        states = [await outbox.states(each) for each in sent]
        assert states == [["DISPATCHED", "SETTLED"]] * count


async def test_an_accepted_instruction_that_comes_back_is_returned(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["accept"]
    outbox_id = await outbox.send()
    await outbox.run()

    ledger.statuses["i1"] = "RETURNED"
    await outbox.reconcile(days=2)

    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED"]
    assert [each.type for each in outbox.events] == ["outbox.dispatched", "outbox.returned"]


async def test_the_service_runs_until_it_is_stopped(outbox: Outbox, ledger: Ledger) -> None:
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    stop = asyncio.Event()

    async def is_decided() -> bool:
        return await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]

    async with asyncio.TaskGroup() as group:
        spawn(group, outbox.reconciler.run(stop))
        await until(is_decided, within=30)
        stop.set()

    assert ledger.bookings == ["i1"]


@dataclass(frozen=True, slots=True)
class WrongRail:
    """A rail whose adapter gives a wrong answer about one instruction."""

    right: Rail
    answer: Any

    @property
    def properties(self) -> RailProperties:
        return self.right.properties

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
        return await self.right.send(instruction, timeout=timeout)

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult:
        if instruction.instruction_id == "bad":
            return self.answer
        return await self.right.query(instruction, timeout=timeout)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        RailAnswer(code="SETTLED", reference="a\x00b"),
        RailAnswer(code="SETTLED", amount=cast("Any", object())),
        RailAnswer(code=cast("Any", {})),
    ],
    ids=["none", "NUL", "amount", "code"],
)
@pytest.mark.parametrize("order", ["lose", "accept"])
async def test_a_wrong_answer_costs_only_its_own_lookup(
    outbox: Outbox, ledger: Ledger, *, answer: Any, order: str
) -> None:
    """One adapter's mistake about one instruction must not stop the service for all rails."""
    assert outbox.rails.rail is not None
    rail = outbox.rails.rail
    outbox.rails.rail = replace(rail, rail=WrongRail(rail.rail, answer))
    ledger.orders += [order] * 3
    sent = [await outbox.send(name, participant=name) for name in ("a", "bad", "c")]
    await outbox.run()
    ledger.statuses |= dict.fromkeys(["a", "c"], "SETTLED")

    assert await outbox.reconcile(minutes=5) == 3

    for each in (sent[0], sent[2]):
        assert (await outbox.states(each))[-1] == ("SETTLED" if order == "accept" else "DISPATCHED")
    assert await outbox.reconcile(seconds=1) == 0, "it is asked for again after a wait"


async def test_a_report_that_cannot_be_applied_costs_only_itself(outbox: Outbox) -> None:
    """Its row is broken in a way that the domain does not write."""
    broken, other = await outbox.send("i1"), await outbox.send("i2", participant="p2")
    await outbox.lose()
    async with outbox.app.pool.acquire() as db:
        for each in (broken, other):
            await outbox.reconciler.results.note(
                db, each, "settled", rail_code=None, rail_reference=None,
                occurred_at=outbox.clock.now(), now=outbox.clock.now(),
            )  # fmt: skip
    await outbox.sweep(seconds=65)
    await outbox.app.pool.execute(
        "UPDATE penstock.outbox_result"
        " SET occurred_at = 'infinity', due_at = due_at - interval '1 h' WHERE outbox_id = $1",
        broken,
    )

    await outbox.reconcile(minutes=1)
    await outbox.reconcile(minutes=1)

    assert (await outbox.states(other))[-1] == "SETTLED"


@pytest.mark.parametrize("purpose", ["settlement", "unknown"])
async def test_a_process_that_stalled_leaves_the_lookup_of_another_alone(
    outbox: Outbox, ledger: Ledger, *, purpose: str
) -> None:
    """While it waited for the rail, another found the acceptance and asks for the settlement."""
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.statuses["i1"] = "ACCEPTED" if purpose == "settlement" else "IN_PROGRESS"
    async with outbox.app.pool.acquire() as db:
        await find_unknown(db, limit=10, now=outbox.clock.now())
        (stale,) = await claim_lookups(db, per_rail=10, claim=timedelta(0), now=outbox.clock.now())
        loaded_now = await outbox.reconciler.loader.load(db, [stale.item_id], are_tried=[True])

    await outbox.reconcile(seconds=1)
    ledger.statuses["i1"] = "PAID"
    await outbox.reconciler._look(stale, loaded_now[stale.item_id])

    left = await outbox.app.pool.fetch("SELECT purpose FROM penstock.outbox_lookup")
    if purpose == "settlement":
        assert [row["purpose"] for row in left] == ["settlement"]
        assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    else:
        assert [row["purpose"] for row in left] == []


async def test_a_lost_instruction_that_is_being_ended_is_not_archived_as_unknown(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A report ends it in an open transaction; UNKNOWN would be its last row, and never change."""
    del ledger
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(seconds=65)
    pool, now = outbox.app.pool, outbox.clock.now()
    item_id = await pool.fetchval("SELECT id FROM penstock.held")

    async with pool.acquire() as ending, pool.acquire() as finding:
        async with ending.transaction():
            paid = Paid(rail_code="PAID", rail_reference=None)
            assert await outbox.reconciler.resolver.end_paid(
                ending, item_id, paid, who="rail", reason="reported", now=now
            )
            found = await find_unknown(finding, limit=10, now=now)
        again = await find_unknown(finding, limit=10, now=now)

    assert (found, again) == ([], [])
    assert await outbox.states(outbox_id) == ["DISPATCHED"]


async def test_the_first_cycle_uses_the_clock_of_the_database(dsn: str, ledger: Ledger) -> None:
    """With a machine's clock that is ahead, "not found" would be final too early: paid twice."""
    ahead = FakeClock(datetime.now(UTC) + DAY)
    rail = loaded(ledger.port, can_query=True, not_found_is_final_after=DAY / 2)
    skewed = DatabaseClock(local=ahead)
    clock = FakeClock(datetime.now(UTC))
    async with opened_outbox(dsn, clock, rail, domain_clock=skewed) as outbox:
        ledger.orders += ["drop"]
        outbox_id = await outbox.send()
        await outbox.run()

        await outbox.reconciler.run_once()

        assert await outbox.states(outbox_id) == ["UNKNOWN"]
        assert ledger.count("query") == 1


async def test_a_report_is_dated_by_the_clock_of_the_database(dsn: str, ledger: Ledger) -> None:
    """An API process makes no claim, from which a worker knows that clock."""
    skewed = DatabaseClock(local=FakeClock(datetime.now(UTC) + timedelta(hours=1)))
    clock = FakeClock(datetime.now(UTC))
    async with opened_outbox(dsn, clock, loaded(ledger.port), domain_clock=skewed) as outbox:
        outbox_id = await outbox.send()
        await outbox.lose()

        response = await report(outbox, outbox_id=str(outbox_id), status="paid")

        assert response.json() == {
            "outbox_id": str(outbox_id), "status": "paid", "outcome": "recorded",
        }  # fmt: skip
        due_at = await outbox.app.pool.fetchval("SELECT due_at FROM penstock.outbox_result")
        assert due_at < datetime.now(UTC) + timedelta(minutes=5)


async def test_settlements_do_not_delay_the_question_about_a_doubt(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A rail that settles in days has thousands of open payments, all due for a question."""
    ledger.orders += ["lose"]
    await outbox.send()
    await outbox.run()
    await outbox.app.pool.execute(
        "INSERT INTO penstock.outbox_lookup (item_id, attempt, rail_type, purpose, due_at, since)"
        " SELECT n, 1, 'loopback', 'settlement', $1, $1 FROM generate_series(1, 10) AS n",
        outbox.clock.now() - DAY,
    )
    async with outbox.app.pool.acquire() as db:
        await find_unknown(db, limit=10, now=outbox.clock.now())

        taken = await claim_lookups(db, per_rail=5, claim=DAY, now=outbox.clock.now())

    assert Counter(each.purpose for each in taken) == {"unknown": 1, "settlement": 5}


async def test_a_second_doubt_is_asked_about_as_soon_as_the_first(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail was silent for an hour in the first; only a repeat in vain makes the wait longer."""
    ledger.orders += ["drop", "lose"]
    ledger.is_silent = True
    outbox_id = await outbox.send()
    await outbox.run()
    for _ in range(15):
        await outbox.reconcile(minutes=6)
    ledger.is_silent = False
    await outbox.reconcile(minutes=6)
    await outbox.run()

    await outbox.reconcile(seconds=1)
    await outbox.reconcile(seconds=10)

    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"
