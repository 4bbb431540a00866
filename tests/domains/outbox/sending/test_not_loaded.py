"""An instruction that cannot be loaded for its attempt is not called, and no doubt is forgotten."""

from datetime import timedelta

from penstock.kernel.item import Done, Hold, Retry
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox


async def broken() -> None:
    raise ValueError("a control that fails")


async def test_it_is_archived_as_retryable_without_a_call_and_sent_later(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox.control.meanwhile = broken
    outbox_id = await outbox.send()

    (first,) = await outbox.run()
    outbox.control.meanwhile = None
    (second,) = await outbox.run_after(hours=1)

    assert isinstance(first.outcome, Retry)
    assert isinstance(second.outcome, Done)
    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["RETRYABLE", "DISPATCHED"]
    assert rows[0]["error_code"] == "NOT_LOADED"
    assert rows[0]["error_message"].startswith("ValueError in ")
    assert ledger.bookings == ["i1"]


async def test_its_failure_after_the_last_attempt_is_announced(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Whoever waits for the end of a payment must hear of every end."""
    outbox.control.meanwhile = broken
    outbox_id = await outbox.send()

    while await outbox.item_state(outbox_id) != "dead":
        assert await outbox.run_after(hours=1)

    assert [(each.type, each.outbox_id, each.error_code) for each in outbox.events] == [
        ("outbox.failed", outbox_id, "NOT_LOADED")
    ]
    assert (await outbox.states(outbox_id))[-2:] == ["RETRYABLE", "FAILED"]
    assert ledger.calls == []


async def test_what_a_dead_worker_may_have_paid_stays_unknown(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Retried without its handler it would end as failed, although it may have been paid."""
    outbox.rails.rail = loaded(ledger.port, can_query=True, not_found_is_final_after=timedelta(0))
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(minutes=2)
    await outbox.reconcile(minutes=2)
    outbox.control.meanwhile = broken

    (attempted,) = await outbox.run_after(hours=1)

    assert isinstance(attempted.outcome, Hold)
    assert await outbox.item_state(outbox_id) == "held"
    assert (await outbox.states(outbox_id))[-1] == "UNKNOWN"
