"""Metrics in the text form of Prometheus: what this process counted, and how deep the lanes are."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Literal

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock.base.meter import BOUNDS, Histogram, Meter
from penstock.kernel.inspect import LaneDepth, measure_lanes
from penstock.postgres.pool import Pool

CONTENT_TYPE = CONTENT_TYPE_LATEST
DEPTHS_AGE_MAX = timedelta(seconds=5)  # Scrapes come every 15 s or so; more of them cost nothing.

Type = Literal["counter", "histogram", "gauge"]

# Every metric that we promise, also before anything was counted. An alert on a name that does not
# exist yet would never fire.
METRICS: dict[str, tuple[Type, str]] = {
    "dispatch_batch_claimed_total": ("counter", "Items claimed."),
    "dispatch_workflow_started_total": ("counter", "Execution workflows started."),
    "dispatch_workflow_start_failures_total": ("counter", "Workflow starts that failed."),
    "dispatch_cycle_duration_seconds": ("histogram", "Duration of a dispatch cycle."),
    "notify_wakeups_total": ("counter", "Wake-ups by a notification."),
    "claim_batches_total": ("counter", "Claims that took at least one item."),
    "dispatch_latency_ms": ("histogram", "How long the handlers of attempts took."),
    "attempts_total": ("counter", "Attempts by how they ended."),
    "reaper_requeues_total": ("counter", "Items given back from expired leases."),
    "gate_fallbacks_total": ("counter", "Times Redis was lost and limits became local."),
    "gate_local_enters_total": ("counter", "Calls decided locally while Redis was away."),
    "kafka_messages_total": ("counter", "Kafka messages by what became of them."),
    "dispatch_queue_depth": ("gauge", "Items of a lane by where they are."),
    "outbox_pending_depth": ("gauge", "Items that wait, ready or parked."),
    "oldest_pending_age_seconds": ("gauge", "How long the oldest due item has been due."),
    "dlq_depth": ("gauge", "Dead letters."),
    "stuck_dispatching_count": ("gauge", "Leases that have expired and are not yet given back."),
}

# They start at zero.
UNLABELLED = (
    "notify_wakeups_total",
    "reaper_requeues_total",
    "gate_fallbacks_total",
    "gate_local_enters_total",
)


@dataclass(slots=True)
class Depths:
    """The lanes' depths, measured when they are asked for and at most every few seconds."""

    _measured: list[LaneDepth] = field(default_factory=list[LaneDepth])
    _stale_at: float = float("-inf")
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, pool: Pool) -> list[LaneDepth]:
        """Return the depths; scrapes that come together share one measurement."""
        async with self._turn:
            if monotonic() >= self._stale_at:
                self._measured = await measure_lanes(pool)
                self._stale_at = monotonic() + DEPTHS_AGE_MAX.total_seconds()
            return self._measured


def render(meter: Meter, depths: Iterable[LaneDepth]) -> bytes:
    """Return the exposition."""
    families = _Families()
    for name in UNLABELLED:
        families.add(name, {}, meter.counters.get((name, ()), 0))
    for (name, labels), value in sorted(meter.counters.items()):
        if name not in UNLABELLED or labels:
            families.add(name, dict(labels), value)
    for (name, labels), histogram in sorted(meter.histograms.items(), key=lambda pair: pair[0]):
        families.add_histogram(name, dict(labels), histogram)
    for depth in depths:
        _add_depth(families, depth)
    return families.text()


def _add_depth(families: "_Families", depth: LaneDepth) -> None:
    lane = {"lane": depth.lane}
    for status in ("ready", "parked", "leased", "held", "dead"):
        labels = lane | {"status": status.upper()}
        families.add("dispatch_queue_depth", labels, getattr(depth, status))
    families.add("outbox_pending_depth", lane, depth.ready + depth.parked)
    families.add("oldest_pending_age_seconds", lane, depth.oldest_due_seconds)
    families.add("dlq_depth", lane, depth.dead)
    families.add("stuck_dispatching_count", lane, depth.expired_leases)


class _Families(Collector):
    """Samples by metric, in the form that prometheus_client renders."""

    def __init__(self) -> None:
        self._metrics = {name: _metric(name, *about) for name, about in METRICS.items()}

    def add(self, name: str, labels: dict[str, str], value: float) -> None:
        """Add one sample of a counter or gauge."""
        metric = self._metrics.setdefault(name, _metric(name, "counter", name))
        metric.add_sample(name, labels, value)

    def add_histogram(self, name: str, labels: dict[str, str], histogram: Histogram) -> None:
        """Add the cumulative buckets, the sum and the count of a histogram."""
        metric = self._metrics.setdefault(name, _metric(name, "histogram", name))
        below = 0
        for bound, count in zip((*BOUNDS, "+Inf"), histogram.buckets, strict=True):
            below += count
            metric.add_sample(f"{name}_bucket", labels | {"le": str(bound)}, below)
        metric.add_sample(f"{name}_sum", labels, histogram.total)
        metric.add_sample(f"{name}_count", labels, histogram.count)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, as prometheus_client asks for them."""
        return self._metrics.values()

    def text(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def _metric(name: str, kind: Type, about: str) -> Metric:
    """Return an empty metric; the library adds a counter's `_total` itself."""
    return Metric(name.removesuffix("_total") if kind == "counter" else name, about, kind)
