"""Metrics in Prometheus' own words, under the names that people's alerts already use."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import LiteralString

import pytest
from httpx import AsyncClient
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from structlog.testing import capture_logs

from penstock import Dead, Item, NewItem, Penstock, Retry
from penstock.api.metrics import declared_metrics, read_gauges, render, type_of
from penstock.base.aio import alongside
from penstock.base.meter import Counter, Gauge, Meter, Metric
from penstock.compose.domains import BUILT_IN
from penstock.contract import Domain, Kind, OwnedLane, Runtime
from penstock.kernel.item import SettledAttempt
from penstock.kernel.metrics import ATTEMPTS, DEPTH, LATENCY_MS
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Connection
from tests.api.scene import Callers, accept, claim_all, end_all
from tests.fault.waiting import until

DECLARED = declared_metrics(BUILT_IN)


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the value of the sample that has exactly these labels."""
    found = [one.value for one in samples_of(text) if one.name == name and one.labels == labels]
    return found[0] if found else None


@pytest.mark.covers("A65")
@pytest.mark.parametrize("path", ["/metrics", "/q/metrics"])
async def test_every_promised_metric_is_there_before_anything_happened(
    callers: Callers, path: str
) -> None:
    """An alert on a name that does not exist yet would never fire."""
    response = await callers.reader.get(path)

    assert response.headers["content-type"].startswith("text/plain")
    types = {
        line.split()[2]: line.split()[3]
        for line in response.text.splitlines()
        if line.startswith("# TYPE")
    }
    assert types == {metric.name: type_of(metric) for metric in DECLARED}
    assert set(types) >= {
        "dispatch_batch_claimed_total", "dispatch_workflow_started_total",
        "dispatch_workflow_start_failures_total", "dispatch_cycle_duration_seconds",
        "dispatch_queue_depth", "dispatch_due_depth", "outbox_pending_depth",
        "oldest_pending_age_seconds", "notify_wakeups_total", "claim_batches_total",
        "dispatch_latency_ms", "attempts_total", "dlq_depth", "reaper_requeues_total",
        "stuck_dispatching_count",
    }  # fmt: skip
    assert types["dispatch_latency_ms"] == "histogram"
    assert value(response.text, "notify_wakeups_total") == 0


@pytest.mark.covers("A70", "E48", "E54")
async def test_depths_are_exported_by_lane(admin: AsyncClient, penstock: Penstock) -> None:
    await accept(admin)
    await end_all(penstock, Dead("broken"))
    await accept(admin)
    await accept(admin)
    await claim_all(penstock)
    await accept(admin, due_at="2100-01-01T00:00:00Z")

    text = (await admin.get("/metrics")).text

    assert value(text, "dispatch_queue_depth", lane="work", status="READY") == 1
    assert value(text, "dispatch_due_depth", lane="work") == 0, "it waits for its time"
    assert value(text, "dispatch_queue_depth", lane="work", status="LEASED") == 2
    assert value(text, "dispatch_queue_depth", lane="work", status="DEAD") == 1
    assert value(text, "dlq_depth", lane="work") == 1
    assert value(text, "outbox_pending_depth", lane="work") == 1
    assert value(text, "oldest_pending_age_seconds", lane="work") == 0
    assert value(text, "stuck_dispatching_count", lane="work") == 0
    assert value(text, "dispatch_queue_depth", lane="payments", status="READY") == 0


@pytest.mark.covers("E49", "E55", "E56")
async def test_items_of_a_dead_worker_are_stuck_until_the_sweeper_gives_them_back(
    admin: AsyncClient, penstock: Penstock
) -> None:
    await accept(admin)
    await accept(admin)
    await claim_all(penstock)
    await penstock.pool.execute(
        "UPDATE penstock.lease SET expires_at = claimed_at + interval '1 us'"
    )
    late = await accept(admin)
    await penstock.pool.execute(
        "UPDATE penstock.ready SET due_at = now() - interval '1 hour' WHERE id = $1", late
    )

    stuck = await metrics_of(penstock)
    await sweep(penstock.pool, meter=penstock.meter, log=penstock.log)
    healed = await metrics_of(penstock)

    assert value(stuck, "stuck_dispatching_count", lane="work") == 2, "it counts items"
    assert value(stuck, "reaper_requeues_total", lane="work") is None
    assert 3_600 <= (value(stuck, "oldest_pending_age_seconds", lane="work") or 0) < 3_700
    assert value(healed, "stuck_dispatching_count", lane="work") == 0
    assert value(healed, "reaper_requeues_total", lane="work") == 2
    assert value(healed, "outbox_pending_depth", lane="work") == 3


async def metrics_of(penstock: Penstock) -> str:
    """Return what a scrape says that shares no earlier measurement."""
    return await scraped(penstock, DECLARED)


async def scraped(penstock: Penstock, declared: Sequence[Metric]) -> str:
    samples = await read_gauges(penstock.pool, declared, meter=penstock.meter, log=penstock.log)
    return render(penstock.meter, samples, declared).decode()


async def test_what_the_process_counts_is_exported_at_every_scrape(
    admin: AsyncClient, penstock: Penstock
) -> None:
    penstock.meter.count(ATTEMPTS, 3, lane="work", state="done")
    await admin.get("/metrics")
    penstock.meter.count(ATTEMPTS, 1, lane="work", state="done")

    text = (await admin.get("/metrics")).text

    assert value(text, "attempts_total", lane="work", state="done") == 4


@pytest.mark.covers("A66", "A69", "E50", "E51", "E52", "E53")
async def test_what_a_worker_does_is_counted(dsn: str) -> None:
    app = Penstock(dsn=dsn)
    handled: list[int] = []
    stop = asyncio.Event()

    @app.handler("work")
    async def work(item: Item[int]) -> Dead | None:
        handled.append(item.payload)
        return Dead("odd") if item.payload == 1 else None

    async def is_heard() -> bool:
        # Nothing is heard before the worker listens, so one notification may not be enough.
        await app.enqueue("work", 0)
        is_awake = app.meter.counters.get(("notify_wakeups_total", ()), 0) > 0
        return is_awake and 1 in handled

    async def stop_when_heard() -> None:
        await until(is_heard, within=20)
        stop.set()

    async with app:
        await app.enqueue_many("work", [NewItem(payload=number) for number in range(3)])
        async with alongside(stop_when_heard()):
            await app.run_worker(stop)
        text = await metrics_of(app)

    done = value(text, "attempts_total", lane="work", state="done") or 0
    assert handled.count(1) == value(text, "attempts_total", lane="work", state="dead") == 1
    assert done == len(handled) - 1 >= 2
    assert value(text, "dispatch_latency_ms_count", lane="work") == len(handled)
    assert (value(text, "dispatch_batch_claimed_total", lane="work") or 0) >= len(handled)
    assert (value(text, "notify_wakeups_total") or 0) >= 1
    assert (value(text, "claim_batches_total", lane="work") or 0) >= 1
    assert (value(text, "dispatch_cycle_duration_seconds_count", lane="work") or 0) >= 1
    # The reference lists the labels that a metric declares, and alerts are written from it.
    shown = {one.name.removesuffix("_count"): set(one.labels) for one in samples_of(text)}
    assert shown.keys() >= {ATTEMPTS.name, LATENCY_MS.name, DEPTH.name}
    for metric in DECLARED:
        assert shown.get(metric.name, set(metric.labels)) == set(metric.labels), metric.name


async def test_a_domain_counts_attempts_by_the_states_that_it_records(dsn: str) -> None:
    """Its alerts are written in its own words, and its policy may turn a Retry into a failure."""
    stop = asyncio.Event()

    async def fail(_item: Item[int]) -> Retry:
        return Retry("refused", after=timedelta(0))

    async def record(_db: Connection, _token: int, settled: Sequence[SettledAttempt]) -> list[str]:
        states = ["FAILED" if each.outcome == "dead" else "RETRYABLE" for each in settled]
        if "FAILED" in states:
            stop.set()
        return states

    kind = Kind(lane="owned", payload_type=int, handle=fail, record=record)
    owned = OwnedLane(name="owned", policy={"max_attempts": 2}, allows=["enqueue"])
    app = Penstock(dsn=dsn)
    app.add_domain(
        Domain(name="recording", lanes=[owned], build=lambda _resources: Runtime(kinds=[kind]))
    )

    async with app:
        await app.enqueue("owned", 1)
        await app.run_worker(stop)
        text = await metrics_of(app)

    counted = {
        one.labels["state"]: one.value
        for one in samples_of(text)
        if one.name == "attempts_total" and one.labels["lane"] == "owned"
    }
    assert counted == {"RETRYABLE": 1, "FAILED": 1}


async def test_scrapes_in_quick_succession_share_one_measurement(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """However many scrape, the database is asked once in five seconds."""
    first = (await admin.get("/metrics")).text
    await accept(admin)

    second = (await admin.get("/metrics")).text

    assert penstock.pool is not None
    assert second == first


def test_a_histogram_is_cumulative_and_ends_in_infinity() -> None:
    meter = Meter()
    for milliseconds in (0.7, 3, 80, 1_000_000):
        meter.observe(LATENCY_MS, milliseconds, lane="work")

    text = render(meter, [], DECLARED).decode()

    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="1.0") == 1
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="5.0") == 2
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="100.0") == 3
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="+Inf") == 4
    assert value(text, "dispatch_latency_ms_count", lane="work") == 4
    assert value(text, "dispatch_latency_ms_sum", lane="work") == pytest.approx(1_000_083.7)


def test_a_counter_that_nobody_declared_is_shown_all_the_same() -> None:
    """A domain may forget to declare what it counts."""
    meter = Meter()
    meter.count(Counter("mails_sent_total", "Mails sent."), 2, lane="mail")

    text = render(meter, [], DECLARED).decode()

    assert value(text, "mails_sent_total", lane="mail") == 2


async def test_a_gauge_of_a_domain_is_read_by_its_statement(penstock: Penstock) -> None:
    sql = """SELECT 'odd "lane"' AS lane, 0.5 AS value"""
    declared = (*DECLARED, Gauge("mails_open", "Mails that wait.", sql=sql))

    text = await scraped(penstock, declared)

    assert value(text, "mails_open", lane='odd "lane"') == 0.5
    assert "# HELP mails_open Mails that wait." in text


WRONG = {
    "a table that is not there": ("SELECT 1 AS value FROM mails", "UndefinedTableError"),
    "no column of the value": ("SELECT 1 AS amount", "KeyError"),
    "no value": ("SELECT NULL AS value", "TypeError"),
    "no number": ("SELECT 'many' AS value", "ValueError"),
    "a parameter": ("SELECT $1::int AS value", "InterfaceError"),
    "a slow statement": ("SELECT 1 AS value FROM pg_sleep(600)", "TimeoutError"),
}


@pytest.mark.parametrize(("sql", "error"), WRONG.values(), ids=WRONG)
async def test_a_gauge_that_fails_is_left_out_logged_and_counted(
    penstock: Penstock, sql: LiteralString, error: str
) -> None:
    """A statement of one domain must not take the metrics of all others away."""
    await penstock.pool.execute("SELECT penstock.enqueue('work', '{}')")
    wrong = Gauge("mails_open", "Mails that wait.", sql=sql)
    right = Gauge("mails_failed", "Mails that failed.", sql="SELECT 3 AS value")

    with capture_logs() as lines:
        text = await scraped(penstock, (*DECLARED, wrong, right))

    assert value(text, "mails_open") is None
    assert value(text, "mails_failed") == 3
    assert value(text, "outbox_pending_depth", lane="work") == 1
    assert value(text, "metrics_gauge_failures_total", metric="mails_open") == 1
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("gauge.failed", "warning")
    assert (line["metric"], line["error"]) == ("mails_open", error)
    assert set(line) == {"event", "log_level", "metric", "error", "where"}
