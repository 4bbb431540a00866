"""Metrics in Prometheus' own words, under the names that people's alerts already use."""

import asyncio

import pytest
from httpx import AsyncClient
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from penstock import Dead, Item, NewItem, Penstock
from penstock.api.metrics import METRICS, render
from penstock.base.meter import Meter
from penstock.kernel.inspect import LaneDepth, measure_lanes
from tests.api.scene import Callers, accept, claim_all, end_all


def samples_of(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the value of the sample that has exactly these labels."""
    found = [one.value for one in samples_of(text) if one.name == name and one.labels == labels]
    return found[0] if found else None


@pytest.mark.covers("A65", "E48", "E49", "E50", "E51", "E52", "E53", "E54", "E55", "E56")
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
    assert types == {name: kind for name, (kind, _) in METRICS.items()}
    assert set(types) >= {
        "dispatch_batch_claimed_total", "dispatch_workflow_started_total",
        "dispatch_workflow_start_failures_total", "dispatch_cycle_duration_seconds",
        "dispatch_queue_depth", "outbox_pending_depth", "oldest_pending_age_seconds",
        "notify_wakeups_total", "claim_batches_total", "dispatch_latency_ms", "attempts_total",
        "dlq_depth", "reaper_requeues_total", "stuck_dispatching_count",
    }  # fmt: skip
    assert types["dispatch_latency_ms"] == "histogram"
    assert value(response.text, "notify_wakeups_total") == 0


@pytest.mark.covers("A70")
async def test_depths_are_told_by_lane(admin: AsyncClient, penstock: Penstock) -> None:
    await accept(admin)
    await end_all(penstock, Dead("broken"))
    await accept(admin)
    await accept(admin)
    await claim_all(penstock)
    await accept(admin, due_at="2100-01-01T00:00:00Z")

    text = (await admin.get("/metrics")).text

    assert value(text, "dispatch_queue_depth", lane="work", status="READY") == 1
    assert value(text, "dispatch_queue_depth", lane="work", status="LEASED") == 2
    assert value(text, "dispatch_queue_depth", lane="work", status="DEAD") == 1
    assert value(text, "dlq_depth", lane="work") == 1
    assert value(text, "outbox_pending_depth", lane="work") == 1
    assert value(text, "oldest_pending_age_seconds", lane="work") == 0
    assert value(text, "stuck_dispatching_count", lane="work") == 0
    assert value(text, "dispatch_queue_depth", lane="payments", status="READY") == 0


async def test_what_the_process_counts_is_told_at_every_scrape(
    admin: AsyncClient, penstock: Penstock
) -> None:
    penstock.meter.count("attempts_total", 3, lane="work", state="done")
    await admin.get("/metrics")
    penstock.meter.count("attempts_total", 1, lane="work", state="done")

    text = (await admin.get("/metrics")).text

    assert value(text, "attempts_total", lane="work", state="done") == 4


@pytest.mark.covers("A66", "A69")
async def test_what_a_worker_does_is_counted(dsn: str) -> None:
    app = Penstock(dsn=dsn)
    handled: list[int] = []
    stop = asyncio.Event()

    @app.handler("work")
    async def work(item: Item[int]) -> None:
        handled.append(item.payload)
        if len(handled) == 3:
            stop.set()

    async with app:
        await app.enqueue_many("work", [NewItem(payload=number) for number in range(3)])
        await app.run_worker(stop)
        text = render(app.meter, await measure_lanes(app.pool)).decode()

    assert value(text, "dispatch_batch_claimed_total", lane="work") == 3
    assert value(text, "attempts_total", lane="work", state="done") == 3
    assert (value(text, "claim_batches_total", lane="work") or 0) >= 1
    assert (value(text, "dispatch_cycle_duration_seconds_count", lane="work") or 0) >= 1


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
        meter.observe("dispatch_latency_ms", milliseconds, lane="work")

    text = render(meter, []).decode()

    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="1.0") == 1
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="5.0") == 2
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="100.0") == 3
    assert value(text, "dispatch_latency_ms_bucket", lane="work", le="+Inf") == 4
    assert value(text, "dispatch_latency_ms_count", lane="work") == 4
    assert value(text, "dispatch_latency_ms_sum", lane="work") == pytest.approx(1_000_083.7)


def test_a_metric_nobody_described_is_told_all_the_same() -> None:
    """A domain may count what this module has never heard of."""
    meter = Meter()
    meter.count("mails_sent_total", 2, lane="mail")
    depth = LaneDepth(
        lane='odd "lane"', ready=0, parked=0, leased=0, held=0, dead=0, oldest_due_seconds=0.5,
        expired_leases=0,
    )  # fmt: skip

    text = render(meter, [depth]).decode()

    assert value(text, "mails_sent_total", lane="mail") == 2
    assert value(text, "oldest_pending_age_seconds", lane='odd "lane"') == 0.5
