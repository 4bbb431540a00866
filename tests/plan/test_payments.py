"""Payments are looked up and listed without a walk over those that there are."""

from datetime import UTC, datetime

from penstock.domains.payments import inspect, persist
from penstock.domains.payments.inspect import PaymentFilter
from penstock.domains.payments.steps import STEPS
from penstock.postgres.pool import Pool
from tests.domains.payments.scene import a_payment
from tests.plan.explain import Explainer

ROWS = """
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
        rail_type, content_hash, created_by, created_at, updated_at, scheduled_at)
    SELECT 'p-' || n, 'PAYMENT', 'SCHEDULED', 12.50, 'EUR', '{}', '{}', 'ada', 'simulator',
        repeat('a', 64), 'test', now(), now(), timestamptz '2031-01-01Z' + n * interval '1 second'
    FROM generate_series(1, 20000) AS n
"""
FROM_AT = datetime(2031, 1, 1, 2, tzinfo=UTC)


async def test_a_page_reads_its_own_rows_and_a_repeat_its_own_keys(db: Pool) -> None:
    """With 20,000 payments, a page of 100 and a batch of 100 touch a few hundred pages."""
    await db.execute(ROWS)
    await db.execute("ANALYZE penstock.payment")
    drafts = [STEPS.validate(a_payment(f"p-{n}")) for n in range(1, 101)]

    async with db.acquire() as connection, connection.transaction():
        explainer = Explainer(connection)
        page = await inspect.list_payments(
            explainer.connection(), only=PaymentFilter(from_at=FROM_AT)
        )
        await inspect.list_payments(explainer.connection(), after=page.next)
        ids = [each.payment_id for each in drafts]
        await explainer.fetchrow(persist.LOOK_UP_PAYMENTS, ids, ["PAYMENT"], None)

    for query in (inspect.LIST_PAYMENTS, persist.LOOK_UP_PAYMENTS):
        explained = explainer.of(query)
        assert explained.walked == []
        assert explained.buffers < 500
    assert "payment_by_time" in explainer.of(inspect.LIST_PAYMENTS).indexes()
    assert page.payments[0].payment_id == "p-20000"
