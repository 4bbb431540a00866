"""Rejections that come after a rail has accepted an instruction, once and again, and returns."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.reconcile.reconciler import POLL_FOR
from penstock.domains.outbox.verdict import Proceed, Stop
from penstock.kernel.item import Snooze
from penstock.kernel.operate import retry
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox
from tests.domains.outbox.sending.test_results import dispatched, item_of, report


async def lookups(outbox: Outbox) -> list[dict[str, Any]]:
    rows = await outbox.app.pool.fetch("SELECT * FROM penstock.outbox_lookup")
    return [dict(row.items()) for row in rows]


async def refused_once(outbox: Outbox, ledger: Ledger, **about: Any) -> UUID:
    """Return an instruction that was in doubt, failed by a report, and is accepted since."""
    ledger.orders += ["lose", "accept"]
    outbox_id = await outbox.send()
    await outbox.run()
    await report(outbox, outbox_id=str(outbox_id), status="refused", **about)
    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED"]
    del ledger.statuses["i1"]
    async with outbox.app.pool.acquire() as db:
        await retry(db, await item_of(outbox, outbox_id), who="ann", reason="x", owner=OWNER)
    await outbox.run_after(minutes=1)
    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED", "DISPATCHED"]
    return outbox_id


async def test_a_rejection_that_is_found_after_the_acceptance_is_final(
    outbox: Outbox, ledger: Ledger
) -> None:
    """AM04 or TM01 allow another call; the accepted one has ended all the same."""
    ledger.orders += ["accept"]
    outbox_id = await dispatched(outbox)

    ledger.statuses["i1"] = "BUSY"
    await outbox.reconcile(days=2)

    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED"]
    assert (await outbox.rows(outbox_id))[1]["rail_code"] == "BUSY"
    assert await lookups(outbox) == []
    assert ledger.count("send") == 1


async def test_a_rejection_that_is_reported_after_the_acceptance_is_final(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["accept"]
    outbox_id = await dispatched(outbox)

    response = await report(outbox, outbox_id=str(outbox_id), code="BUSY")

    assert response.json() == {
        "outbox_id": str(outbox_id), "status": "refused", "outcome": "applied",
    }  # fmt: skip
    assert await outbox.states(outbox_id) == ["DISPATCHED", "RETURNED"]


async def test_a_rejection_for_now_of_a_paid_instruction_contradicts_it(outbox: Outbox) -> None:
    outbox_id = await dispatched(outbox)

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), code="BUSY")

    assert await outbox.states(outbox_id) == ["DISPATCHED"]
    assert "instruction.contradicted" in [line["event"] for line in lines]


async def test_a_rejection_for_now_does_not_keep_the_next_attempt_back(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail answered BUSY, and reports the same: the lane's backoff decides, as without it."""
    ledger.orders += ["BUSY"]
    outbox_id = await outbox.send()
    await outbox.run()

    response = await report(outbox, outbox_id=str(outbox_id), code="BUSY")
    await outbox.run_after(hours=1)

    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]


async def test_a_rejection_for_now_that_overtakes_the_acceptance_is_applied_after_it(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The report comes while the call is in flight, and the call ends as accepted."""
    ledger.orders += ["wait"]
    outbox_id = await outbox.send()
    await outbox.lose()

    response = await report(outbox, outbox_id=str(outbox_id), code="BUSY")
    assert response.json()["outcome"] == "recorded"
    ledger.statuses["i1"] = "ACCEPTED"
    await outbox.sweep(seconds=65)
    await outbox.reconcile(seconds=1)
    await outbox.reconcile(minutes=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED", "RETURNED"]
    assert ledger.count("send") == 0


@pytest.mark.parametrize("can_query", [True, False], ids=["query", "no query any more"])
async def test_an_instruction_that_does_not_settle_in_time_is_left_to_a_person(
    outbox: Outbox, ledger: Ledger, *, can_query: bool
) -> None:
    """Silence after 60 days would hide a payment that never arrived."""
    ledger.orders += ["accept"]
    outbox_id = await dispatched(outbox)
    outbox.rails.rail = loaded(ledger.port, can_query=can_query)

    with capture_logs() as lines:
        await outbox.reconcile(days=POLL_FOR.days + 1)
        await outbox.reconcile(days=2)

    logged = [line for line in lines if line["event"] == "instruction.unsettled"]
    assert [(line["log_level"], line["outbox_id"]) for line in logged] == [
        ("error", str(outbox_id))
    ]
    (lookup,) = await lookups(outbox)
    assert lookup["left_at"] is not None

    await report(outbox, outbox_id=str(outbox_id), status="settled")
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED"]
    assert await lookups(outbox) == []


async def test_a_second_refusal_is_applied(outbox: Outbox, ledger: Ledger) -> None:
    """A person has released the instruction after the first one, and it was accepted since."""
    outbox_id = await refused_once(outbox, ledger)

    about: dict[str, Any] = {"outbox_id": str(outbox_id), "reference": "ref-i1"}
    response = await report(outbox, status="refused", **about)
    repeated = await report(outbox, status="refused", **about)

    assert (response.json()["outcome"], repeated.json()["outcome"]) == ("applied", "known")
    assert (await outbox.states(outbox_id))[-1] == "RETURNED"
    assert await lookups(outbox) == []


async def test_a_refusal_that_may_be_that_of_an_earlier_call_returns_nothing(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail ignores keys, and does not say which call it means: the second one may be paid."""
    outbox_id = await refused_once(outbox, ledger)

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), status="refused")

    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"
    assert "instruction.contradicted" in [line["event"] for line in lines]
    assert len(await lookups(outbox)) == 1, "what becomes of it is still asked"


async def test_what_is_said_of_a_call_that_was_refused_before_says_nothing_of_a_later_one(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A rail that ignores keys may find the first of two calls; as RETURNED it was paid twice."""
    ledger.orders += ["REJECTED", "accept"]
    ledger.references["i1"] = "first"
    outbox_id = await outbox.send()
    await outbox.run()
    del ledger.statuses["i1"], ledger.references["i1"]
    async with outbox.app.pool.acquire() as db:
        await retry(db, await item_of(outbox, outbox_id), who="ann", reason="x", owner=OWNER)
    await outbox.run_after(minutes=1)
    ledger.statuses["i1"], ledger.references["i1"] = "REJECTED", "first"

    await outbox.reconcile(days=2)
    for status in ("refused", "returned"):
        await report(outbox, outbox_id=str(outbox_id), status=status, reference="first")
    still = await outbox.states(outbox_id)
    del ledger.references["i1"]
    await outbox.reconcile(days=2)

    assert still[-1] == "DISPATCHED"
    assert (await outbox.states(outbox_id))[-1] == "RETURNED", "the refusal of the second call"


async def test_a_second_refusal_is_found_by_asking(outbox: Outbox, ledger: Ledger) -> None:
    outbox_id = await refused_once(outbox, ledger)

    ledger.statuses["i1"] = "REJECTED"
    await outbox.reconcile(days=2)

    assert (await outbox.states(outbox_id))[-1] == "RETURNED"
    assert await lookups(outbox) == []


async def test_the_first_refusal_that_is_repeated_late_is_not_a_second_one(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A repeat that was on its way must not return what the rail has accepted since."""
    at = outbox.clock.now().isoformat()
    outbox_id = await refused_once(outbox, ledger, occurred_at=at)

    response = await report(outbox, outbox_id=str(outbox_id), status="refused", occurred_at=at)

    assert response.json()["outcome"] == "known"
    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"


async def test_the_return_of_an_earlier_call_is_not_that_of_the_call_that_was_accepted(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The first call was paid without a reply and came back; the rail said so, and was repeated."""
    ledger.orders += ["lose", "pay"]
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.statuses["i1"], ledger.references["i1"] = "BUSY", "first"
    await outbox.reconcile(seconds=1)
    del ledger.references["i1"]
    await outbox.run_after(minutes=1)
    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"

    response = await report(outbox, outbox_id=str(outbox_id), status="returned", reference="first")
    still = await outbox.states(outbox_id)
    await report(outbox, outbox_id=str(outbox_id), status="returned", reference="ref-i1")

    assert response.json()["outcome"] == "known"
    assert still[-1] == "DISPATCHED"
    assert (await outbox.states(outbox_id))[-1] == "RETURNED", "that of the second call"


@pytest.mark.parametrize("when", ["in flight", "in doubt"])
async def test_a_repeated_refusal_of_an_earlier_call_does_not_end_a_later_one(
    outbox: Outbox, ledger: Ledger, when: str
) -> None:
    """Rails repeat their reports. The later call was paid, and its reply was lost."""
    ledger.orders += ["REJECTED"]
    ledger.references["i1"] = "first"
    outbox_id = await outbox.send()
    await outbox.run()
    del ledger.statuses["i1"], ledger.references["i1"]
    ledger.is_silent = True
    async with outbox.app.pool.acquire() as db:
        await retry(db, await item_of(outbox, outbox_id), who="ann", reason="x", owner=OWNER)
    outbox.clock.advance(timedelta(minutes=1))
    await outbox.lose()
    if when == "in doubt":
        await outbox.sweep(seconds=65)

    await report(outbox, outbox_id=str(outbox_id), status="refused", reference="first")
    await outbox.sweep(seconds=65)
    await outbox.reconcile(minutes=1)

    assert (await outbox.states(outbox_id))[-1] == "UNKNOWN"
    assert await outbox.item_state(outbox_id) == "held"


async def test_a_return_that_is_reported_by_its_code_after_the_settlement_is_a_return(
    outbox: Outbox,
) -> None:
    """Return files have codes such as R01, and no word for their status."""
    outbox_id = await dispatched(outbox)
    await report(outbox, outbox_id=str(outbox_id), status="settled")

    response = await report(outbox, outbox_id=str(outbox_id), code="RETURNED")

    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == ["DISPATCHED", "SETTLED", "RETURNED"]


async def test_a_code_after_the_settlement_may_belong_to_another_call(
    outbox: Outbox, ledger: Ledger
) -> None:
    """With two calls it may be the refusal of the other one: as RETURNED it could be paid twice."""
    ledger.orders += ["BUSY", "pay"]
    outbox_id = await outbox.send()
    await outbox.run()
    del ledger.statuses["i1"]
    await outbox.run_after(hours=1)
    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]
    await report(outbox, outbox_id=str(outbox_id), status="settled")

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), code="REJECTED")

    assert (await outbox.states(outbox_id))[-1] == "SETTLED"
    assert "instruction.contradicted" in [line["event"] for line in lines]


async def test_a_stopped_instruction_in_doubt_is_not_released(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Its next attempt would be stopped and held again, and so on with each look."""
    ledger.orders += ["drop"]
    outbox_id = await outbox.send()
    await outbox.run()
    outbox.control.verdict = Stop(Snooze(POLL_FOR, "stopped: all *"), "STOPPED")

    for _ in range(4):
        await outbox.reconcile(minutes=6)
        await outbox.run()
    assert await outbox.states(outbox_id) == ["UNKNOWN"]

    outbox.control.verdict = Proceed()
    await outbox.reconcile(minutes=6)
    await outbox.run()
    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]
