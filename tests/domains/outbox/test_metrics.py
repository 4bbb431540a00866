"""The metrics of the outbox under the names that alerts use, each moved by what it measures."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import Dead, Done, Hold, Item, NewItem, Outcome, Penstock, Retry
from penstock.api import create_app
from penstock.base.aio import alongside
from penstock.base.meter import Meter
from penstock.contract import Domain, Kind, OwnedLane, Resources, Runtime
from penstock.domains.outbox.audit.seal import seal
from penstock.domains.outbox.lanes import GUARDS, LANE, OWNER, POLICY
from penstock.domains.outbox.metrics import METRICS, count_rows
from penstock.kernel.claim import Cursor, claim
from penstock.kernel.enqueue import enqueue
from penstock.kernel.item import SettledAttempt
from penstock.kernel.lane import read_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Connection
from tests.api.scene import called
from tests.database import run_sql
from tests.domains.outbox.audit.archived import add
from tests.fault.waiting import until

ENDINGS: dict[str, Outcome] = {
    "pay": Done(),
    "fail": Dead("refused"),
    "repeat": Retry("busy", after=timedelta(hours=1)),
    "doubt": Hold("unknown: no answer"),
}
STATES = {"done": "DISPATCHED", "dead": "FAILED", "retry": "RETRYABLE", "hold": "UNKNOWN"}


class Order(msgspec.Struct):
    """How an item of these tests ends."""

    ending: str


may_end = asyncio.Event()
has_begun = asyncio.Event()


async def handle(item: Item[Order]) -> Outcome:
    if item.payload.ending == "late":
        has_begun.set()
        await may_end.wait()
        return Hold("unknown: no answer")
    return ENDINGS[item.payload.ending]


async def record(_db: Connection, _token: int, settled: Sequence[SettledAttempt]) -> list[str]:
    return [STATES[each.outcome] for each in settled]


def build(_resources: Resources) -> Runtime:
    return Runtime(kinds=[Kind(lane=LANE, payload_type=Order, handle=handle, record=record)])


# As the migration of the controls creates it.
GAP = """
    CREATE TABLE IF NOT EXISTS penstock.outbox_gap (
        gap_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        outbox_id uuid NOT NULL,
        participant_id text COLLATE "C" NOT NULL,
        sequence_id bigint NOT NULL,
        who text NOT NULL,
        reason text NOT NULL,
        at timestamptz NOT NULL
    )
"""


@pytest.fixture
async def app(dsn: str) -> AsyncGenerator[Penstock]:
    """An app whose outbox has a handler that ends items on order; no worker runs."""
    domain = Domain(
        name=OWNER,
        migration_packages=["penstock.domains.outbox"],
        lanes=[OwnedLane(name=LANE, policy=POLICY, guards=GUARDS)],
        metrics=METRICS,
        build=build,
    )
    await run_sql(dsn, GAP)
    async with Penstock(dsn=dsn, domains=[domain]) as opened:
        yield opened


async def accept(
    app: Penstock, participant: str, ending: str, *, due_at: datetime | None = None
) -> None:
    item = NewItem(payload=Order(ending), order_key=participant, due_at=due_at)
    async with app.pool.acquire() as db, db.transaction():
        await enqueue(db, LANE, item, owner=OWNER)


async def scrape(app: Penstock) -> dict[str, float]:
    """Return what GET /metrics shows of the outbox: each value by its name and its state."""
    async with called(app, create_app(app)) as callers:
        text = (await callers.reader.get("/metrics")).text
    return {
        f"{sample.name} {sample.labels.get('state', sample.labels.get('le', ''))}".strip(): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("lane", LANE) == LANE
    }


@pytest.mark.covers("E48", "E50", "E51", "E52", "E53", "E54")
async def test_what_a_worker_does_moves_the_metrics_of_the_outbox(app: Penstock) -> None:
    stop = asyncio.Event()

    async def count(state: str) -> float:
        return app.meter.counters.get(("attempts_total", (("lane", LANE), ("state", state))), 0)

    async def is_done() -> bool:
        # Nothing is heard before the worker listens, so one notification may not be enough.
        await accept(app, "p-0", "pay")
        is_awake = app.meter.counters.get(("notify_wakeups_total", ()), 0) > 0
        return is_awake and all([await count(state) for state in STATES.values()])

    async def stop_when_done() -> None:
        await until(is_done, within=20)
        stop.set()

    before = await scrape(app)
    for number, ending in enumerate(ENDINGS, start=1):
        await accept(app, f"p-{number}", ending)
    await accept(app, "p-2", "pay")
    async with alongside(stop_when_done()):
        await app.run_worker(stop)
    after = await scrape(app)

    assert before["notify_wakeups_total"] == before["outbox_pending_depth"] == 0
    assert after["attempts_total FAILED"] == after["attempts_total RETRYABLE"] == 1
    assert after["attempts_total UNKNOWN"] == 1
    assert after["attempts_total DISPATCHED"] >= 1
    assert not {"attempts_total done", "attempts_total dead"} & after.keys()
    assert after["dlq_depth"] == 1
    assert after["outbox_pending_depth"] >= 2, "one waits for its retry, one behind the failed head"
    assert after["blocked_order_keys"] == 1
    assert after["outbox_unknown_instructions"] == 1
    assert after["notify_wakeups_total"] >= 1
    assert after["claim_batches_total"] >= 1
    attempts = sum(value for name, value in after.items() if name.startswith("attempts_total "))
    returned = after.get("attempts_total returned", 0)
    assert after["dispatch_latency_ms_count"] == attempts - returned
    assert after["dispatch_latency_ms_bucket +Inf"] == after["dispatch_latency_ms_count"]


async def test_a_late_result_is_counted_under_no_outcome_of_the_kernel(app: Penstock) -> None:
    """`hold` is no state of the archive; the row UNKNOWN of a lost attempt is counted by itself."""
    stop = asyncio.Event()

    async def is_late() -> bool:
        return bool(await app.pool.fetchval("SELECT count(*) FROM penstock.late_result"))

    async def lose_the_lease() -> None:
        await has_begun.wait()
        await app.pool.execute(
            "UPDATE penstock.lease SET expires_at = claimed_at + interval '1 us'"
        )
        await sweep(app.pool, meter=app.meter, log=app.log)
        may_end.set()
        await until(is_late, within=20)
        stop.set()

    await accept(app, "p-1", "late")
    async with alongside(lose_the_lease()):
        await app.run_worker(stop)
    after = await scrape(app)

    assert {name for name in after if name.startswith("attempts_total ")} == set()


@pytest.mark.covers("E49", "E55", "E56")
async def test_what_a_dead_worker_held_moves_the_metrics_of_the_outbox(app: Penstock) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await accept(app, "p-1", "pay", due_at=hour_ago)
    waiting = await scrape(app)
    await accept(app, "p-2", "pay")
    async with app.pool.acquire() as db:
        lane = await read_lane(db, LANE)
        await claim(db, lane.lane_id, Cursor(), limit=10, worker="dead")
        await db.execute(
            "UPDATE penstock.lease SET started_ids = item_ids, "
            "expires_at = claimed_at + interval '1 us'"
        )

    stuck = await scrape(app)
    await sweep(app.pool, meter=app.meter, log=app.log)
    healed = await scrape(app)

    assert 3_600 <= waiting["oldest_pending_age_seconds"] < 3_700
    assert stuck["oldest_pending_age_seconds"] == 0
    assert (waiting["stuck_dispatching_count"], stuck["stuck_dispatching_count"]) == (0, 2)
    assert "reaper_requeues_total" not in stuck
    assert (healed["stuck_dispatching_count"], healed["reaper_requeues_total"]) == (0, 2)
    assert healed["outbox_unknown_instructions"] == 2


async def test_only_held_instructions_that_may_have_been_paid_are_unknown(app: Penstock) -> None:
    lane = await app.pool.fetchval("SELECT lane_id FROM penstock.lane WHERE name = $1", LANE)
    for number, reason in enumerate(["awaits approval", "suspended: x", "unknown: x", "lost"]):
        await app.pool.execute(
            "INSERT INTO penstock.held (id, held_at, lane_id, attempt, forgiven, reason) "
            "VALUES ($1, now(), $2, 1, 0, $3)",
            number,
            lane,
            reason,
        )

    assert (await scrape(app))["outbox_unknown_instructions"] == 2


async def test_rows_without_a_seal_have_an_age(app: Penstock) -> None:
    empty = await scrape(app)
    await add(app.pool, 2, at=datetime.now(UTC) - timedelta(minutes=10))
    unsealed = await scrape(app)
    await seal(app.pool)
    sealed = await scrape(app)

    assert empty["outbox_unsealed_seconds"] == sealed["outbox_unsealed_seconds"] == 0
    assert 600 <= unsealed["outbox_unsealed_seconds"] < 700


async def test_gaps_are_counted(app: Penstock) -> None:
    await app.pool.execute(
        "INSERT INTO penstock.outbox_gap (outbox_id, participant_id, sequence_id, who, reason, at) "
        "VALUES (gen_random_uuid(), 'p', 1, 'ann', 'refused for good', now())"
    )

    assert (await scrape(app))["outbox_sequence_gaps"] == 1


def test_later_rows_are_counted_by_state() -> None:
    meter = Meter()

    count_rows(meter, "SETTLED", 2)
    count_rows(meter, "RETURNED", 1)

    assert meter.counters == {
        ("attempts_total", (("lane", LANE), ("state", "SETTLED"))): 2,
        ("attempts_total", (("lane", LANE), ("state", "RETURNED"))): 1,
    }
