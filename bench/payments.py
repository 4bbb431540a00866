"""The bar of payments: many that are due at one instant, executed by the built-in engine.

Executed means: the instruction is accepted by the outbox, the payment is PROCESSING, and the item
is settled. The rate is compared with that of items that do nothing, in the same run.
"""

import asyncio
import time
from datetime import timedelta
from typing import Final

import psutil

from bench import measure
from bench.dispatch import LOOK_SECONDS, DispatchFailed, Scene, prepared, working
from bench.figures import (
    OTHERS,
    Measurement,
    Row,
    at_least,
    at_most,
    detail,
    limit_row,
    named,
    ratio_row,
)
from bench.machine import process_seconds
from bench.measure import Bench, Case
from bench.tried import Figures, tried
from penstock.domains.payments.lanes import LANE
from penstock.postgres.pool import Connection

PARTICIPANTS: Final = 1_000
CHUNK: Final = 5_000
SECONDS_MAX: Final = 600.0
NO_PACING: Final = {"dispatch_interval": timedelta(0), "jitter_window": timedelta(0)}

FILL_PAYMENTS: Final = """
WITH numbered AS MATERIALIZED (
    SELECT number, 'pay-' || number AS payment_id, 'participant-' || number % $3 AS participant_id,
        '{"name": "Ada Lovelace", "iban": "DE89370400440532013000"}'::jsonb AS debtor,
        '{"name": "Bob", "iban": "FR1420041010050500013M02606", "bic": "PSSTFRPPLIL"}'::jsonb
            AS creditor
    FROM generate_series($1::integer, $2::integer - 1) AS number
), item AS MATERIALIZED (
    SELECT index, item_id
    FROM (
        SELECT array_agg(jsonb_build_object('payment_id', payment_id) ORDER BY number) AS payloads,
            array_agg(payment_id ORDER BY number) AS keys,
            array_agg($4::timestamptz) AS due_ats,
            array_agg(NULL::text) AS order_keys,
            array_agg(NULL::timestamptz) AS not_afters
        FROM numbered
    ) AS listed
    CROSS JOIN LATERAL penstock.enqueue_many(
        'payment', payloads, keys, due_ats, order_keys, not_afters, now(), 'payments')
), paid AS (
    INSERT INTO penstock.payment (
        payment_id, item_type, status, amount, currency, debtor, creditor, participant_id,
        rail_type, scheduled_at, content_hash, item_id, created_by, created_at, updated_at)
    SELECT payment_id, 'PAYMENT', 'SCHEDULED', 12.50, 'EUR', debtor, creditor, participant_id,
        'simulator', $4, repeat('0', 64), item_id, 'bench', now(), now()
    FROM numbered JOIN item ON item.index = numbered.number - $1 + 1
)
INSERT INTO penstock.payment_exec_context (payment_id, item_type, context_json, context_version)
SELECT payment_id, 'PAYMENT', jsonb_build_object(
    'amount', '12.50', 'currency', 'EUR', 'debtor', debtor, 'creditor', creditor,
    'participant_id', participant_id, 'rail_type', 'simulator', 'notify', '{}'::jsonb), 1
FROM numbered
"""
IS_EXECUTED: Final = """
SELECT clock_timestamp() AS seen_at,
    NOT EXISTS (SELECT FROM penstock.ready WHERE lane_id = lane.lane_id)
        AND NOT EXISTS (SELECT FROM penstock.lease WHERE lane_id = lane.lane_id) AS is_executed
FROM penstock.lane
WHERE name = $1
"""
EXECUTED: Final = """
SELECT count(*) FILTER (WHERE status = 'PROCESSING') AS executed,
    (SELECT count(*) FROM penstock.outbox_instruction) AS instructions,
    (SELECT min(claimed_at) FROM penstock.attempt) AS began_at
FROM penstock.payment
"""


async def built_in(bench: Bench) -> list[Row]:
    """Payments due at one instant per second, against items that do nothing."""
    count = bench.sizes.items
    idle = await measure.drain_rate(bench, bench.ours)
    own = await built_in_rate(bench, count)
    name = f"payments executed, {count:,} due at one instant"
    return [
        ratio_row(name, own, named(idle, "items that do nothing"), bar=at_least(0.25)),
        limit_row(
            f"{name}: WAL per payment", detail(own, "wal", "B"), bar=at_most(8_000, "≤ 8 kB")
        ),
    ]


CASES: Final[dict[str, Case]] = {"payments": built_in}


async def built_in_rate(bench: Bench, count: int) -> Measurement:
    """Return how many payments one worker executes per second."""

    async def run() -> Figures:
        async with prepared(bench, [], lane=LANE, **NO_PACING) as scene:
            await schedule(scene, count)
            await bench.server.rest(scene.database)
            bench.report.doing(f"penstock: execute {count:,} payments")
            wal_before = await bench.server.wal_bytes()
            with bench.watched() as others:
                async with scene.pool.acquire() as db, working(scene, lane=LANE) as worker:
                    cpu_before = process_seconds(psutil.Process(worker.pid))
                    seconds = await _drain(db, count)
                    cpu = process_seconds(psutil.Process(worker.pid)) - cpu_before
            wal = await bench.server.wal_bytes() - wal_before
        return count / seconds, {
            "cpu": 1e6 * cpu / count,
            "wal": wal / count,
            OTHERS: others.percent,
        }

    return await tried(bench, run, what="payments executed", unit="/s")


async def schedule(scene: Scene, count: int) -> None:
    """Schedule payments that are due at one instant, which is past when the worker starts."""
    scene.bench.report.doing(f"penstock: schedule {count:,} payments", count)
    async with scene.pool.acquire() as db:
        due_at = await db.fetchval("SELECT now()")
        for first in range(0, count, CHUNK):
            until = min(first + CHUNK, count)
            await db.execute(FILL_PAYMENTS, first, until, PARTICIPANTS, due_at)
            scene.bench.report.progress(until)


async def _drain(db: Connection, count: int) -> float:
    """Wait until all are executed; return the seconds from the first claim on."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        looked = await db.fetchrow(IS_EXECUTED, LANE)
        assert looked is not None
        if looked["is_executed"]:
            found = await db.fetchrow(EXECUTED)
            assert found is not None
            if (found["executed"], found["instructions"]) != (count, count):
                raise DispatchFailed(f"{count:,} payments, but {found['executed']:,} executed")
            took = looked["seen_at"] - found["began_at"]
            return took.total_seconds()
        await asyncio.sleep(LOOK_SECONDS)
    raise DispatchFailed(f"not all payments were executed in {SECONDS_MAX:g} s")
