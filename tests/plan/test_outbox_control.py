"""A batch is decided about at the cost of its own number, with 45,000 charges around."""

from datetime import UTC, datetime

import pytest

from penstock.domains.outbox.control import checks as control
from penstock.postgres.array import to_array
from tests.plan.conftest import Rows
from tests.plan.explain import Explainer

BATCH = 300
PAGES_PER_INSTRUCTION = 60  # Limits, switch, suspension, approval, charge and the sum of the day.
PAGES_ONCE = 400

CHARGES = """
    INSERT INTO penstock.outbox_charge (outbox_id, day)
    SELECT outbox_id, '2029-01-01' FROM penstock.outbox_instruction WHERE sequence_id > 1
"""
TOTALS = """
    INSERT INTO penstock.outbox_day_total (participant_id, currency, day, amount, amount_max)
    SELECT participant_id, 'EUR', date '2029-01-01' + sequence_id::integer, 1, 1
    FROM penstock.outbox_instruction
"""
LIMITS = """
    INSERT INTO penstock.outbox_limit
        (scope, name, currency, amount_max, approval_above, day_amount_max)
    SELECT 'participant', 'p-' || n, 'EUR', 100, 50, 1000 FROM generate_series(1, 5000) AS n
"""
SUSPENSIONS = """
    INSERT INTO penstock.outbox_suspension (participant_id, reason, who, at)
    SELECT 'other-' || n, 'looked at', 'test', now() FROM generate_series(1, 20000) AS n
"""
DECISIONS = """
    INSERT INTO penstock.outbox_approval (outbox_id, decision, key_id, reason, decided_at)
    SELECT outbox_id, 'approved', 'key', 'looked at', now()
    FROM penstock.outbox_instruction WHERE sequence_id > 1
"""
HEADS = "SELECT * FROM penstock.outbox_instruction WHERE sequence_id = 1 LIMIT $1"


@pytest.fixture(scope="module")
def rows() -> Rows:
    """With instructions."""
    return "domains"


async def test_a_batch_is_decided_about_without_a_walk(explainer: Explainer) -> None:
    """The statement runs for every claim; charges are kept for every instruction with a limit."""
    for statement in (CHARGES, TOTALS, LIMITS):
        await explainer.db.execute(statement)
    heads = await explainer.db.fetch(HEADS, BATCH)
    columns = ("outbox_id", "item_id", "participant_id", "rail_type", "amount", "currency")

    rows = await explainer.fetch(
        control.CONTROL,
        *([row[column] for row in heads] for column in columns),
        [True] * BATCH,
        datetime(2030, 1, 1, tzinfo=UTC),
    )

    explained = explainer.of(control.CONTROL)
    assert [row["is_within_day"] for row in rows] == [True] * BATCH
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_INSTRUCTION * BATCH, explained.buffers


async def test_most_batches_are_looked_up_in_short_lists_only(explainer: Explainer) -> None:
    """Suspensions and decisions of others, which are kept, must not be read for every claim."""
    for statement in (SUSPENSIONS, DECISIONS):
        await explainer.db.execute(statement)
    heads = await explainer.db.fetch(HEADS, BATCH)

    rows = await explainer.fetch(
        control.HAS_CONTROLS,
        to_array(row["outbox_id"] for row in heads),
        [row["participant_id"] for row in heads],
        ["sepa"],
        ["EUR"],
    )

    explained = explainer.of(control.HAS_CONTROLS)
    assert [row[0] for row in rows] == [False]
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_INSTRUCTION * BATCH, explained.buffers
