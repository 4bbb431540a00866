"""The view of the queue costs what is asked of it: one row, or each table once."""

from collections.abc import AsyncGenerator

import pytest

from penstock.postgres.embedded import Server
from penstock.postgres.pool import connect
from tests.database import copy_database, run_sql
from tests.plan.explain import Explainer

FILLED = "filled"
COUNT = 50_000
PAGES_OF_ONE = 100  # A look into each of a dozen tables.
PAGES_PER_PAYMENT = 25  # With statistics of the empty tables, the planner looks up each row.
PAGES_PER_PAYMENT_IF_KNOWN = 1  # With those of now, it reads each table once.

# Half of the payments wait, a tenth each is leased, held and dead, and the others are done.
FILL = """
    WITH numbered AS (
        SELECT n, 'p-' || n AS payment_id, lane_id, last_value + n AS item_id,
            now() + n * interval '1 second' AS due_at
        FROM penstock.item_id, penstock.lane, generate_series(1, $1::integer) AS n
        WHERE lane.name = 'payment'
    ), context AS (
        INSERT INTO penstock.payment_exec_context
            (payment_id, item_type, context_json, context_version)
        SELECT payment_id, 'PAYMENT', '{"amount": "12.50"}', 1 FROM numbered
    ), key AS (
        INSERT INTO penstock.idempotency (item_id, lane_id, key, payload_hash)
        SELECT item_id, lane_id, payment_id, '' FROM numbered
    ), item AS (
        INSERT INTO penstock.item (id, due_at, created_at, lane_id, key, payload)
        SELECT item_id, due_at, now(), lane_id, payment_id, '{}' FROM numbered
    ), ready AS (
        INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)
        SELECT due_at, item_id, lane_id, 0, 0 FROM numbered WHERE n % 10 < 5
    ), leased AS (
        INSERT INTO penstock.lease
            (claimed_at, expires_at, lane_id, worker, item_ids, attempts, forgiven)
        SELECT now(), now() + interval '1 hour', lane_id, 'test', array_agg(item_id),
            array_agg(0), array_agg(0)
        FROM numbered
        WHERE n % 10 = 5
        GROUP BY lane_id, n / 5000
    ), held AS (
        INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason)
        SELECT item_id, now(), lane_id, 0, 0, 'no reply' FROM numbered WHERE n % 10 = 6
    ), dead AS (
        INSERT INTO penstock.dead (id, died_at, lane_id, attempt, forgiven, reason)
        SELECT item_id, now(), lane_id, 0, 0, 'refused' FROM numbered WHERE n % 10 = 7
    ), done AS (
        INSERT INTO penstock.attempt
            (item_id, token, claimed_at, settled_at, lane_id, duration_ms, attempt, outcome)
        SELECT item_id, 1, now(), now(), lane_id, 1, 1, 'done' FROM numbered WHERE n % 10 > 7
    )
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
        rail_type, scheduled_at, content_hash, created_by, created_at, updated_at)
    SELECT payment_id, 'PAYMENT', 'SCHEDULED', 12.50, 'EUR', '{}', '{}', 'shop', 'simulator',
        due_at, repeat('a', 64), 'test', now(), now()
    FROM numbered
"""
READ_ONE = "SELECT * FROM penstock.payment_exec_queue WHERE payment_id = $1"
READ_READY = "SELECT payment_id FROM penstock.payment_exec_queue WHERE queue_status = $1"
COUNT_ALL = """
    SELECT queue_status, count(*) FROM penstock.payment_exec_queue
    WHERE item_type = $1
    GROUP BY queue_status
"""


@pytest.fixture(scope="module", params=["stale", "fresh"])
async def database(
    server: Server, template: str, request: pytest.FixtureRequest
) -> AsyncGenerator[str]:
    """Many payments, with statistics of the empty tables, and then with those of now."""
    dsn = await copy_database(server.dsn, template, FILLED)
    connection = await connect(dsn)
    await connection.execute("ANALYZE")
    await connection.execute(FILL, COUNT)
    if request.param == "fresh":
        await connection.execute("ANALYZE")
    await connection.close()
    yield dsn
    await run_sql(server.dsn, f"DROP DATABASE {FILLED} WITH (FORCE)")


@pytest.fixture
async def filled(database: str) -> AsyncGenerator[Explainer]:
    """An open transaction, which only reads."""
    connection = await connect(database)
    async with connection.transaction():
        # A plan that is a thousand times too long should not hold up the others.
        await connection.execute("SET LOCAL statement_timeout = '20s'")
        yield Explainer(connection)
    await connection.close()


@pytest.mark.parametrize("number", [10, 15, 16, 17, 18])
async def test_one_payment_is_looked_up_by_its_id(filled: Explainer, number: int) -> None:
    row = await filled.fetchrow(READ_ONE, f"p-{number}")

    assert row is not None
    explained = filled.of(READ_ONE)
    assert explained.walked == []
    assert explained.buffers <= PAGES_OF_ONE, explained.buffers


async def test_all_payments_are_counted_by_joins(
    filled: Explainer, request: pytest.FixtureRequest
) -> None:
    """A function for each row took 7 ms: minutes, for the payments of one afternoon."""
    ready = await filled.fetch(READ_READY, "READY")
    counted = await filled.fetch(COUNT_ALL, "PAYMENT")

    assert len(ready) == COUNT / 2
    assert {row[0]: row[1] * 10 // COUNT for row in counted} == {
        "READY": 5, "CLAIMED": 1, "HELD": 1, "DEAD": 1, "DISPATCHED": 2,
    }  # fmt: skip
    is_known = request.node.callspec.params["database"] == "fresh"
    per_payment = PAGES_PER_PAYMENT_IF_KNOWN if is_known else PAGES_PER_PAYMENT
    for query in (READ_READY, COUNT_ALL):
        assert filled.of(query).buffers <= per_payment * COUNT, filled.of(query).buffers
