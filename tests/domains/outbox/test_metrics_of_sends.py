"""The nine metrics move with real sends to the simulator, a dead worker and its repair."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from penstock import Penstock, Snooze
from penstock.base.aio import alongside
from penstock.base.clock import FakeClock
from penstock.compose import outbox as composed
from penstock.domains.outbox.control import switch
from penstock.domains.outbox.enqueue import NewInstruction, Outbox
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.registry import HTTP_JSON, RailRow, put_rail
from penstock.kernel.claim import Cursor, claim
from penstock.kernel.lane import read_lane
from penstock.kernel.sweep import sweep
from penstock.testing import run_due
from tests.domains.outbox.test_metrics import scrape
from tests.fault.waiting import until

# How the simulator treats an instruction, and what the archive says about it at the end.
ORDERS: dict[str, tuple[dict[str, object], str]] = {
    "paid": ({}, "DISPATCHED"),
    "refused": ({"code": "REJECTED"}, "FAILED"),
    "busy": ({"code": "BUSY"}, "RETRYABLE"),
    "doubtful": ({"lose": "before_booking"}, "UNKNOWN"),
}

SEND = """
    SELECT penstock.send_instruction('i-1', 'p-1', 'k-1', $1,
        '{"amount": "1.00", "currency": "EUR", "destination": {"iban": "x"}}',
        now() - interval '1 hour')
"""


async def send(app: Penstock, name: str, **simulate: object) -> UUID:
    """Send an instruction of a participant of its own; the ledger outlives the test."""
    instruction = NewInstruction(
        instruction_id=f"{name}-{uuid4()}",
        participant_id=name,
        idempotency_key="1",
        rail_type="simulator",
        payload={
            "amount": "12.50", "currency": "EUR", "destination": {"iban": "x"},
            "simulate": simulate,
        },
    )  # fmt: skip
    return (await app.api(Outbox).send(instruction)).outbox_id


async def lose(app: Penstock) -> None:
    """Claim what is due as a worker that dies after it has started."""
    async with app.pool.acquire() as db:
        lane = await read_lane(db, LANE)
        await claim(db, lane.lane_id, Cursor(), limit=10, worker="dead")
        await db.execute(
            "UPDATE penstock.lease SET started_ids = item_ids, "
            "expires_at = claimed_at + interval '1 us'"
        )


@pytest.mark.covers("E48", "E49", "E50", "E51", "E52", "E53", "E54", "E55", "E56")
async def test_real_sends_move_the_nine_metrics(dsn: str) -> None:
    """A metric that only a stand-in moves may stay at zero when money is stuck."""
    stop = asyncio.Event()
    async with Penstock(dsn=dsn, domains=[composed.DOMAIN]) as app:
        await send(app, "lost")
        pending = await scrape(app)
        await lose(app)
        stuck = await scrape(app)
        await sweep(app.pool, meter=app.meter, log=app.log)
        healed = await scrape(app)

        async def is_done() -> bool:
            # Nothing is heard before the worker listens, so one notification may not be enough.
            await send(app, "paid")
            found = await scrape(app)
            states = [state for _, state in ORDERS.values()]
            return found.get("notify_wakeups_total", 0) > 0 and all(
                found.get(f"attempts_total {state}", 0) for state in states
            )

        async def send_all() -> None:
            for name, (order, _) in ORDERS.items():
                await send(app, name, **order)
            await until(is_done, within=60)
            stop.set()

        async with alongside(send_all()):
            await app.run_worker(stop)
        after = await scrape(app)

    assert pending["outbox_pending_depth"] == 1
    assert pending["oldest_pending_age_seconds"] > 0
    assert (pending["stuck_dispatching_count"], stuck["stuck_dispatching_count"]) == (0, 1)
    assert (healed["stuck_dispatching_count"], healed["reaper_requeues_total"]) == (0, 1)
    assert after["notify_wakeups_total"] >= 1
    assert after["claim_batches_total"] >= 1
    assert after["attempts_total FAILED"] == after["dlq_depth"] == 1
    assert after["attempts_total DISPATCHED"] >= 1
    assert after["attempts_total RETRYABLE"] >= 1
    assert after["attempts_total UNKNOWN"] >= 1
    assert after["dispatch_latency_ms_count"] >= len(ORDERS)
    assert after["dispatch_latency_ms_sum"] > 0
    assert after["outbox_pending_depth"] >= 1, "the busy one waits for its next attempt"


@pytest.mark.parametrize(
    ("rail_type", "reason"),
    [("nowhere", "no rail nowhere in this process"), ("known", "stopped: rail known")],
    ids=["no rail", "switch"],
)
async def test_an_instruction_that_cannot_leave_is_counted_from_its_due_instant(
    dsn: str, rail_type: str, reason: str
) -> None:
    """It is tried every half minute, so it is never due for long; the alert must see it."""
    known = RailRow(
        rail_type="known",
        adapter=HTTP_JSON,
        config={
            "send": {"url": "https://rail.example", "body": {"key": "{key}"}},
            "answer": {"code": ["code"]},
        },
        code_set="iso20022",
    )
    async with Penstock(dsn=dsn, domains=[composed.DOMAIN]) as app:
        async with app.pool.acquire() as db:
            await put_rail(db, known, vault=app.resources.vault, who="test")
            await switch.stop(db, "rail", "known", who="test", reason="the bank has called")
            await db.execute(SEND, rail_type)
        (tried,) = await run_due(app, FakeClock(datetime.now(UTC)))

        found = await scrape(app)

    assert isinstance(tried.outcome, Snooze)
    assert tried.outcome.reason == reason
    assert 3_600 <= found["oldest_pending_age_seconds"] < 3_700
