"""A row that was changed after a call promises nothing about that call."""

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.domains.outbox.sending.ledger import Ledger, keeping, loaded
from tests.domains.outbox.sending.scene import Outbox

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    "promise",
    [
        {"key_valid_for": DAY},
        {"can_query": True, "not_found_is_final_after": SECOND},
        {"can_query": True, "not_found_is_final_after": SECOND, "key_valid_for": DAY},
    ],
    ids=["key", "absence", "both"],
)
async def test_a_promise_that_is_made_after_a_call_does_not_count_for_it(
    outbox: Outbox, ledger: Ledger, promise: dict[str, Any]
) -> None:
    """The first call had no key, and the new address does not know it: it would be paid twice."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()

    async with keeping(Ledger()) as other:
        since = outbox.clock.now() + SECOND
        outbox.rails.rail = loaded(other.port, promises_since=since, **promise)
        with capture_logs() as lines:
            await outbox.reconcile(minutes=1)
        await outbox.run_after(hours=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN"]
    assert (ledger.bookings, other.bookings) == (["i1"], [])
    (line,) = [line for line in lines if line["event"] == "instruction.left_undecided"]
    assert line["code"] == "RAIL_CHANGED"


async def test_a_change_after_the_release_keeps_the_handler_from_sending(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The reconciler has decided under the old row, and the call would be made under the new."""
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY)
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    await outbox.reconcile(seconds=1)

    since = outbox.clock.now()
    outbox.rails.rail = loaded(ledger.port, key_valid_for=DAY, promises_since=since)
    await outbox.run()

    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["UNKNOWN", "ZOMBIE_REQUEUE", "UNKNOWN"]
    assert rows[-1]["error_code"] == "RAIL_CHANGED"
    assert ledger.bookings == ["i1"]


async def test_what_the_rail_says_about_a_payment_counts_after_a_change(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Only what it does not know proves nothing."""
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()

    since = outbox.clock.now() + SECOND
    outbox.rails.rail = loaded(ledger.port, can_query=True, promises_since=since)
    await outbox.reconcile(minutes=1)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]


async def test_a_call_under_the_present_row_is_decided_by_its_promises(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A refusal under an older row is no doubt."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["BUSY", "drop"]
    outbox_id = await outbox.send()
    await outbox.run()

    since = outbox.clock.now() + SECOND
    outbox.rails.rail = loaded(ledger.port, promises_since=since, key_valid_for=DAY)
    await outbox.run_after(hours=1)
    await outbox.reconcile(seconds=1)
    await outbox.run()

    assert await outbox.states(outbox_id) == [
        "RETRYABLE", "UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED",
    ]  # fmt: skip
