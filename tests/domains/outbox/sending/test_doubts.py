"""A call that may have paid is never hidden: not by a refusal, a control or another amount."""

from datetime import timedelta
from typing import Any

import pytest

from penstock.base.clock import FakeClock
from penstock.domains.outbox.verdict import Proceed, Stop
from penstock.kernel.item import Dead, Hold, Snooze
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox, opened_outbox


async def test_a_refusal_of_a_repeat_leaves_the_doubt_about_the_first_call(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The rail may refuse before it looks at the key, and the first call may have paid."""
    outbox.rails.rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    ledger.orders += ["lose", "REJECTED"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)

    await outbox.run()

    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["UNKNOWN", "ZOMBIE_REQUEUE", "UNKNOWN"]
    assert (rows[-1]["error_code"], rows[-1]["rail_code"]) == ("REFUSED_IN_DOUBT", "REJECTED")
    await outbox.reconcile(minutes=10)
    assert await outbox.item_state(outbox_id) == "held", "a person decides, and nobody repeats it"


@pytest.mark.parametrize("promise", [{"key_valid_for": timedelta(days=1)}, {"can_query": True}])
async def test_another_amount_is_left_to_a_person(
    outbox: Outbox, ledger: Ledger, promise: dict[str, Any]
) -> None:
    """A repeat answers the same, and a query may not tell the amount: neither clears it up."""
    outbox.rails.rail = loaded(ledger.port, **promise)
    ledger.amount = "99.00"
    outbox_id = await outbox.send()
    await outbox.run()
    ledger.amount = None

    await outbox.reconcile(seconds=1)
    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert await outbox.item_state(outbox_id) == "held"
    assert ledger.count("send") == 1


@pytest.mark.parametrize(
    "stop",
    [
        Stop(Hold("awaits approval: over 10 EUR"), "AWAITS_APPROVAL"),
        Stop(Snooze(timedelta(minutes=1), "stopped: all *"), "STOPPED"),
        Stop(Dead("over the limit"), "OVER_LIMIT"),
    ],
    ids=["hold", "snooze", "dead"],
)
async def test_a_control_does_not_hide_that_an_instruction_may_be_paid(
    outbox: Outbox, ledger: Ledger, stop: Stop
) -> None:
    """As PENDING it would be in no list of unknown ones, and nobody could resolve it."""
    outbox.rails.rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)
    outbox.control.verdict = stop

    await outbox.run()

    (unknown,) = await outbox.app.pool.fetch("SELECT reason FROM penstock.outbox_unknown")
    assert unknown["reason"] == f"unknown: {stop.outcome.reason}"
    assert (await outbox.rows(outbox_id))[-1]["error_code"] == stop.code
    assert ledger.count("send") == 1
    outbox.control.verdict = Proceed()
    await outbox.reconcile(minutes=10)
    await outbox.reconcile(minutes=10)
    await outbox.run()
    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"


async def test_a_switch_right_before_a_repeat_leaves_it_unknown(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox.rails.rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)
    await outbox.app.pool.execute(
        "INSERT INTO penstock.outbox_switch VALUES ('all', '*', 'incident', 'ann', now())"
    )

    await outbox.run()

    (row,) = (await outbox.rows(outbox_id))[2:]
    assert (row["state"], row["error_code"]) == ("UNKNOWN", "STOPPED")
    assert row["error_message"] == "stopped: incident"
    assert ledger.count("send") == 1


async def test_a_key_that_expires_before_the_call_is_not_used(
    dsn: str, clock: FakeClock, ledger: Ledger
) -> None:
    """The machine may be suspended between the decision and the call."""
    suspended = [False]

    def crash_point(label: str) -> None:
        if suspended[0] and label == "after_fence":
            clock.advance(timedelta(days=2))

    rail = loaded(ledger.port, key_valid_for=timedelta(days=1))
    async with opened_outbox(dsn, clock, rail, crash_point=crash_point) as outbox:
        ledger.orders += ["lose"]
        outbox_id = await outbox.send()
        await outbox.run()
        await outbox.reconcile(seconds=1)
        suspended[0] = True
        await outbox.run()

        assert (await outbox.states(outbox_id))[-1] == "UNKNOWN"
    assert ledger.count("send") == 1
