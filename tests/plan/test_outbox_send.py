"""The statements around a call cost what their own batch needs, with 50,000 instructions around."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.domains.outbox import check_call, loader, lookup
from penstock.domains.outbox.audit import archive
from penstock.domains.outbox.lanes import LANE
from penstock.postgres.array import to_array
from penstock.postgres.pool import Row
from tests.plan.conftest import Rows
from tests.plan.explain import Explainer

BATCH = 300
PAGES_PER_INSTRUCTION = 60  # Rows and indexes of instruction, attempts, archive and results.
PAGES_ONCE = 400
NOW = datetime(2030, 1, 1, tzinfo=UTC)
TOKEN = 1_000_000_007

LOOKUPS = """
    INSERT INTO penstock.outbox_lookup (item_id, attempt, rail_type, purpose, due_at, since)
    SELECT item_id, 1, 'simulator', 'settlement', $1, now() FROM penstock.outbox_instruction
    WHERE sequence_id > 1
"""
LEASE = """
    INSERT INTO penstock.lease
        (token, lane_id, worker, item_ids, attempts, forgiven, claimed_at, expires_at)
    OVERRIDING SYSTEM VALUE
    SELECT $1, lane_id, 'w', $2::bigint[], array_fill(1, ARRAY[cardinality($2::bigint[])]),
        array_fill(0, ARRAY[cardinality($2::bigint[])]), $3::timestamptz,
        $3::timestamptz + interval '1 minute'
    FROM penstock.lane WHERE name = $4
"""
SUSPENSIONS = """
    INSERT INTO penstock.outbox_suspension (participant_id, reason, who, at)
    SELECT 'other-' || n, 'x', 'test', now() FROM generate_series(1, 20000) AS n
"""
# The lane keeps the walk short: `ready` has no index by id, and other lanes have millions of rows.
HOLD = """
    WITH gone AS (
        DELETE FROM penstock.ready
        WHERE lane_id = (SELECT lane_id FROM penstock.lane WHERE name = $3)
            AND id = ANY ($1::bigint[])
        RETURNING id, lane_id
    ), tried AS (
        INSERT INTO penstock.attempt (item_id, token, claimed_at, settled_at, lane_id, duration_ms,
            attempt, outcome, reason)
        SELECT id, $2, now(), now(), lane_id, 1, 1, 'hold', 'unknown: no answer' FROM gone
    )
    INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason)
    SELECT id, now(), lane_id, 1, 0, 'unknown: no answer' FROM gone
"""


@pytest.fixture(scope="module")
def rows() -> Rows:
    """With instructions."""
    return "domains"


async def heads(explainer: Explainer) -> list[Row]:
    return await explainer.db.fetch(
        "SELECT * FROM penstock.outbox_instruction WHERE sequence_id = 1 LIMIT $1", BATCH
    )


def assert_bounded(explainer: Explainer, query: str) -> None:
    explained = explainer.of(query)
    assert explained.walked == []
    assert explained.buffers <= PAGES_ONCE + PAGES_PER_INSTRUCTION * BATCH, explained.buffers


@pytest.mark.parametrize("is_tried", [False, True], ids=["first", "again"])
async def test_a_batch_is_loaded_by_the_keys_of_its_items(
    explainer: Explainer, *, is_tried: bool
) -> None:
    ids = [row["item_id"] for row in await heads(explainer)]

    tried = to_array(ids if is_tried else [])
    rows = await explainer.fetch(loader.LOAD_INSTRUCTIONS, to_array(ids), tried)

    assert len(rows) == BATCH
    assert_bounded(explainer, loader.LOAD_INSTRUCTIONS)


async def test_calls_are_checked_without_a_walk_over_suspensions(explainer: Explainer) -> None:
    """It runs right before every call, so each of its pages delays a payment."""
    batch = await heads(explainer)
    ids = [row["item_id"] for row in batch]
    await explainer.db.execute(SUSPENSIONS)
    await explainer.db.execute(LEASE, TOKEN, ids, NOW, LANE)

    rows = await explainer.fetch(
        check_call.CHECK_CALL,
        [TOKEN] * BATCH,
        ids,
        [row["rail_type"] for row in batch],
        [row["participant_id"] for row in batch],
        [row["outbox_id"] for row in batch],
        NOW,
    )

    assert [(row["seconds_left"], row["stop"]) for row in rows] == [(60.0, None)] * BATCH
    assert_bounded(explainer, check_call.CHECK_CALL)


@pytest.mark.parametrize("is_known", [True, False], ids=["instruction", "item only"])
async def test_endings_are_archived_at_the_cost_of_their_own_number(
    explainer: Explainer, *, is_known: bool
) -> None:
    batch = await heads(explainer)
    texts: list[str | None] = [None] * BATCH
    columns: list[Any] = [
        to_array(row["item_id"] for row in batch),
        to_array(row["outbox_id"] if is_known else "NULL" for row in batch),
        to_array([1] * BATCH),
        to_array([7] * BATCH),
        ["DISPATCHED"] * BATCH,
        texts, texts, texts, texts,
        NOW,
        TOKEN,
    ]  # fmt: skip

    await explainer.execute(archive.RECORD_ATTEMPTS, *columns)

    assert_bounded(explainer, archive.RECORD_ATTEMPTS)


async def test_unknown_results_are_found_among_those_that_are_held(explainer: Explainer) -> None:
    """The service looks every two seconds, and nearly always finds nothing."""
    await explainer.db.execute(LOOKUPS, NOW)
    ids = [row["item_id"] for row in await heads(explainer)]
    await explainer.db.execute(HOLD, ids, TOKEN, LANE)
    query = (lookup.FIND_UNKNOWN, BATCH, NOW, timedelta(seconds=1), timedelta(hours=1))

    found = await explainer.fetch(*query)
    again = await explainer.fetch(*query)

    assert ({row["id"] for row in found}, again) == (set(ids), [])
    assert_bounded(explainer, lookup.FIND_UNKNOWN)


async def test_due_lookups_are_taken_from_the_beginning_of_an_index(explainer: Explainer) -> None:
    """Rails that settle in days have as many lookups as they have open payments."""
    await explainer.db.execute(LOOKUPS, NOW + timedelta(days=1))
    ids = [row["item_id"] for row in await heads(explainer)]
    await explainer.db.execute(
        "INSERT INTO penstock.outbox_lookup (item_id, attempt, rail_type, purpose, due_at, since)"
        " SELECT id, 1, 'simulator', 'unknown', $2, now() FROM unnest($1::bigint[]) AS id",
        ids,
        NOW,
    )

    taken = await explainer.fetch(lookup.CLAIM_LOOKUPS, BATCH, timedelta(minutes=1), NOW)

    assert {row["item_id"] for row in taken} == set(ids)
    assert_bounded(explainer, lookup.CLAIM_LOOKUPS)


async def test_late_payments_are_looked_for_among_what_was_left_to_a_person(
    explainer: Explainer,
) -> None:
    """Rails that settle in days have as many lookups as they have open payments."""
    await explainer.db.execute(LOOKUPS, NOW + timedelta(days=1))
    ids = [row["item_id"] for row in await heads(explainer)]
    await explainer.db.execute(
        "INSERT INTO penstock.outbox_lookup"
        " (item_id, attempt, rail_type, purpose, due_at, since, left_at)"
        " SELECT id, 1, 'simulator', 'unknown', $2, now(), now() FROM unnest($1::bigint[]) AS id",
        ids,
        NOW + timedelta(days=1),
    )
    await explainer.db.execute(
        "INSERT INTO penstock.late_result (item_id, token, settled_at, attempt, outcome)"
        " SELECT id, $2, now(), 1, 'done' FROM unnest($1::bigint[]) AS id",
        ids,
        TOKEN,
    )

    await explainer.execute(lookup.HASTEN_PAID_LATE, NOW)

    due = "SELECT count(*) FROM penstock.outbox_lookup WHERE due_at = $1"
    assert await explainer.db.fetchval(due, NOW) == len(ids)
    assert_bounded(explainer, lookup.HASTEN_PAID_LATE)
