"""Several calls of one instruction on a rail that ignores keys: each is a payment of its own.

What the rail says about one of them decides nothing about another.
"""

from datetime import timedelta
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from penstock.base.log import get_logger
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.operate import release
from penstock.domains.outbox.errors import DecisionRefused
from tests.domains.outbox.sending.conftest import FINAL
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox
from tests.domains.outbox.sending.test_results import report


async def released(outbox: Outbox, outbox_id: UUID) -> None:
    """Release an instruction as an operator does."""
    async with outbox.app.pool.acquire() as db:
        archive = Archive(log=get_logger())
        now = outbox.clock.now()
        await release(db, outbox_id, archive=archive, who="ann", reason="try again", now=now)


async def called_again(outbox: Outbox, ledger: Ledger) -> UUID:
    """Return an instruction of which a query said that the first call was refused for now.

    The second call was paid, its reply was lost, and the rail still shows the first one.
    """
    ledger.orders += ["drop", "lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.statuses["i1"], ledger.references["i1"] = "BUSY", "first"
    await outbox.reconcile(seconds=1)
    await outbox.run_after(seconds=1)
    ledger.statuses["i1"] = "BUSY"
    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "UNKNOWN"]
    return outbox_id


async def test_a_refusal_that_a_query_found_is_not_taken_for_that_of_the_next_call(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Released at once, the instruction was paid a second time."""
    outbox_id = await called_again(outbox, ledger)

    await outbox.reconcile(seconds=1)
    await outbox.run()
    ledger.statuses["i1"], ledger.references["i1"] = "PAID", "second"
    await outbox.reconcile(seconds=FINAL.total_seconds())

    assert (await outbox.rows(outbox_id))[-1]["rail_reference"] == "second"
    assert ledger.paid_twice == []


async def test_the_reference_of_a_refusal_that_a_query_found_is_archived(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Only by it, what the rail says of the first call can be told from what it says later."""
    outbox_id = await called_again(outbox, ledger)

    cleared = (await outbox.rows(outbox_id))[1]

    assert (cleared["error_code"], cleared["rail_code"]) == ("REFUSED", "BUSY")
    assert cleared["rail_reference"] == "first"


async def test_the_return_of_an_earlier_call_does_not_end_the_one_in_doubt(
    outbox: Outbox, ledger: Ledger
) -> None:
    """As RETURNED, the instruction could be sent under another key, and be paid twice."""
    outbox_id = await called_again(outbox, ledger)

    response = await report(outbox, outbox_id=str(outbox_id), status="returned", reference="first")
    await outbox.reconcile(seconds=1)

    assert response.json()["outcome"] == "known"
    assert (await outbox.states(outbox_id))[-1] == "UNKNOWN"


@pytest.mark.parametrize("status", ["refused", "returned"])
async def test_a_report_that_may_be_about_an_earlier_call_is_left_to_a_person(
    outbox: Outbox, ledger: Ledger, status: str
) -> None:
    """The first call got no reference, and the report has none or one that nobody knows."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["BUSY", "lose"]
    ledger.references["i1"] = None
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.run_after(hours=1)
    assert await outbox.states(outbox_id) == ["RETRYABLE", "UNKNOWN"]

    with capture_logs() as lines:
        for reference in (None, "some-call"):
            await report(outbox, outbox_id=str(outbox_id), status=status, reference=reference)

    assert (await outbox.states(outbox_id))[-1] == "UNKNOWN"
    assert await outbox.item_state(outbox_id) == "held"
    left = [line for line in lines if line["event"] == "instruction.left_undecided"]
    assert [line["status"] for line in left] == [status, status]
    assert not await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_result")


async def test_a_return_without_a_reference_may_be_that_of_an_earlier_call(
    outbox: Outbox, ledger: Ledger
) -> None:
    ledger.orders += ["BUSY", "pay"]
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.references["i1"] = "second"
    await outbox.run_after(hours=1)
    assert await outbox.states(outbox_id) == ["RETRYABLE", "DISPATCHED"]

    with capture_logs() as lines:
        await report(outbox, outbox_id=str(outbox_id), status="returned")
    still = await outbox.states(outbox_id)
    await report(outbox, outbox_id=str(outbox_id), status="returned", reference="second")

    assert still[-1] == "DISPATCHED"
    assert "instruction.contradicted" in [line["event"] for line in lines]
    assert (await outbox.states(outbox_id))[-1] == "RETURNED"


async def test_a_refusal_that_is_reported_while_the_next_call_waits_ends_the_doubt(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Held for another reason, it was shown as unknown, and nobody could resolve it."""
    ledger.orders += ["drop"]
    outbox_id = await outbox.send()
    await outbox.run()
    await released(outbox, outbox_id)

    response = await report(outbox, outbox_id=str(outbox_id), status="refused", reference="first")

    assert response.json()["outcome"] == "applied"
    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED"]
    assert await outbox.item_state(outbox_id) == "dead"


async def test_a_doubt_without_a_rail_stays_unknown(outbox: Outbox, ledger: Ledger) -> None:
    """As one that only waits for its rail, no alert would show that it may have been paid."""
    outbox.rails.rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)
    outbox.rails.rail = None

    await outbox.run()

    assert await outbox.item_state(outbox_id) == "held"
    assert (await outbox.rows(outbox_id))[-1]["error_code"] == "NO_RAIL"


async def test_an_instruction_that_came_back_after_its_failure_is_not_released(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Its next attempt would end it as paid, because the archive says that it was once."""
    ledger.orders += ["drop"]
    ledger.statuses["i1"] = "RETURNED"
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)
    await report(outbox, outbox_id=str(outbox_id), status="returned", reference="ref-i1")
    states = ["UNKNOWN", "FAILED", "DISPATCHED", "RETURNED"]
    assert await outbox.states(outbox_id) == states

    with pytest.raises(DecisionRefused, match="was returned"):
        await released(outbox, outbox_id)

    assert await outbox.states(outbox_id) == states
    assert await outbox.item_state(outbox_id) == "dead"
