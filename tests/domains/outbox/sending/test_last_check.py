"""Decisions that come after an instruction was loaded, and before its call."""

from decimal import Decimal

from penstock.domains.outbox.control.approval import reject
from penstock.domains.outbox.control.limits import AmountLimits, put_limits
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.outbox.sending.scene import Outbox


async def test_a_rejection_after_the_load_stops_the_call(outbox: Outbox, ledger: Ledger) -> None:
    """The person was told that it is rejected: it must not be paid a moment later."""
    outbox_id = await outbox.send()

    async def limit_and_reject() -> None:
        outbox.control.meanwhile = None
        archive = outbox.reconciler.resolver.archive
        async with outbox.app.pool.acquire() as db:
            await put_limits(
                db,
                AmountLimits(scope="all", name=None, currency="EUR", approval_above=Decimal(1)),
                who="test",
            )
            await reject(db, outbox_id, archive=archive, who="key:ann", reason="unknown payee")

    outbox.control.meanwhile = limit_and_reject

    (attempted,) = await outbox.run()

    assert ledger.calls == []
    assert "rejected: unknown payee" in str(attempted.outcome)
    assert await outbox.item_state(outbox_id) == "scheduled"
