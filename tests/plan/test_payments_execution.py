"""The statements of phase B cost what their own batch needs, with 60,000 payments around."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from penstock.domains.payments import dispatch_log, execute, loader, results, stuck
from penstock.postgres.pool import connect
from tests.plan.explain import Explainer

BATCH = 300
COUNT = 30_000
PAGES_PER_PAYMENT = 40  # Rows and indexes of payment, context and log.
PAGES_ONCE = 400

FILL = """
    WITH numbered AS (
        SELECT $3 || n AS payment_id, lpad(n::text, 32, '0')::uuid AS outbox_id,
            now() + n * interval '1 second' AS at
        FROM generate_series(1, $1::integer) AS n
    ), context AS (
        INSERT INTO penstock.payment_exec_context
            (payment_id, item_type, context_json, context_version)
        SELECT payment_id, 'PAYMENT', '{"amount": "12.50"}', 1 FROM numbered
    )
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
        rail_type, scheduled_at, outbox_id, content_hash, created_by, created_at, updated_at)
    SELECT payment_id, 'PAYMENT', $2, 12.50, 'EUR', '{}', '{}', 'shop', 'simulator', at,
        outbox_id, repeat('a', 64), 'test', now(), now()
    FROM numbered
"""
LOG = """
    INSERT INTO penstock.dispatch_audit_log (batch_id, item_type, payment_id, action)
    SELECT 'BATCH-' || n % 100, 'PAYMENT', 'p-' || n, 'DISPATCHED'
    FROM generate_series(1, $1::integer) AS n
"""
IDS = [f"p-{number}" for number in range(1_000, 1_000 + BATCH)]
EXECUTED_IDS = [f"executed-{number}" for number in range(1_000, 1_000 + BATCH)]
OUTBOX_IDS = [UUID(f"{number:032d}") for number in range(1_000, 1_000 + BATCH)]


@pytest.fixture(scope="module")
async def database(database: str) -> str:
    """The database with payments and their log, and without statistics about them."""
    connection = await connect(database)
    await connection.execute(FILL, COUNT, "SCHEDULED", "p-")
    await connection.execute(FILL, COUNT, "PROCESSING", "executed-")
    await connection.execute(LOG, COUNT)
    await connection.close()
    return database


def assert_bounded(explainer: Explainer, query: str) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_PAYMENT * BATCH, explained.buffers


@pytest.mark.parametrize(
    ("query", "arguments"),
    [
        (loader.LOAD_PAYMENTS, ("payment", IDS)),
        (execute.LOCK_PAYMENTS, (IDS,)),
        (execute.MOVE_EXECUTED, (IDS, OUTBOX_IDS)),
        (execute.REJECT_PAYMENTS, (IDS, ["refused"] * BATCH)),
        (results.FIND_EXECUTED, (IDS, OUTBOX_IDS)),
    ],
    ids=["load", "lock", "move", "reject", "find"],
)
async def test_a_batch_is_found_by_the_ids_of_its_payments(
    explainer: Explainer, *, query: Any, arguments: tuple[Any, ...]
) -> None:
    rows = await explainer.fetch(query, *arguments)

    assert len(rows) == BATCH
    assert_bounded(explainer, query)


async def test_executed_payments_are_moved_by_the_ids_of_their_results(
    explainer: Explainer,
) -> None:
    moved = await explainer.fetch(
        results.MOVE_BY_RESULT, EXECUTED_IDS, "SETTLED", [None] * BATCH, [None] * BATCH
    )

    assert len(moved) == BATCH
    assert_bounded(explainer, results.MOVE_BY_RESULT)


async def test_a_batch_is_logged_without_reading_the_log(explainer: Explainer) -> None:
    """Its earlier parts are found by the batch, among those of all others."""
    await explainer.fetch(
        dispatch_log.LOG_DISPATCHES, 1_000_000_007, "payment", IDS,
        ["DISPATCHED"] * BATCH, [None] * BATCH,
    )  # fmt: skip

    assert_bounded(explainer, dispatch_log.LOG_DISPATCHES)


async def test_stuck_payments_are_found_by_a_page_of_the_log(explainer: Explainer) -> None:
    """A service looks every few seconds; it must read neither all payments nor the whole log."""
    await explainer.fetch(
        stuck.NOTE_STUCK, None, stuck.GRACE, stuck.WINDOW, BATCH, stuck.STUCK_MAX,
        datetime.now(UTC) + 2 * stuck.GRACE,
    )  # fmt: skip

    assert_bounded(explainer, stuck.NOTE_STUCK)
