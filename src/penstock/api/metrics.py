"""Metrics in the text format of Prometheus: this process's counters, and the lanes' depths."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any, LiteralString

import asyncpg
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock.app import Penstock
from penstock.base.log import Logger, describe
from penstock.base.meter import BOUNDS, Counter, Distribution, Gauge, Histogram, Meter, Metric
from penstock.compose.domains import KERNEL
from penstock.contract import Domain
from penstock.contract.http import Content, NoParameters
from penstock.kernel import metrics as kernel
from penstock.kernel.inspect import LaneDepth, measure_lanes
from penstock.postgres.pool import CONNECTION_LOST, Pool
from penstock.web import metrics as web
from penstock.web.call import WebCall

CONTENT_TYPE = CONTENT_TYPE_LATEST
GAUGES_AGE_MAX = timedelta(seconds=5)  # Scrapes come every 15 s or so; more of them cost nothing.
GAUGE_TIMEOUT = timedelta(seconds=2)  # A statement that takes longer is not cheap.

# A statement that is wrong or too slow, and rows without a number in the column `value`.
GAUGE_FAILED = (*CONNECTION_LOST, asyncpg.PostgresError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a gauge, and its labels."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class GaugeReader:
    """The gauges of the kernel and of the domains, read on demand, at most every few seconds."""

    _read: list[Sample] = field(default_factory=list[Sample])
    _stale_at: float = float("-inf")
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, penstock: Penstock, declared: Sequence[Metric]) -> list[Sample]:
        """Return the samples; concurrent scrapes share one reading."""
        async with self._turn:
            if monotonic() >= self._stale_at:
                self._read = await read_gauges(
                    penstock.pool, declared, meter=penstock.meter, log=penstock.log
                )
                self._stale_at = monotonic() + GAUGES_AGE_MAX.total_seconds()
            return self._read


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The endpoint that Prometheus scrapes."""

    gauges: GaugeReader = field(default_factory=GaugeReader)

    async def show(self, call: WebCall[NoParameters, None]) -> Content:
        """Render the metrics."""
        penstock = call.context.penstock
        declared = declared_metrics(penstock.all_domains())
        samples = [
            *await self.gauges.read(penstock, declared),
            *_clock_samples(penstock.clock.offset),
        ]
        return Content(body=render(penstock.meter, samples, declared), media_type=CONTENT_TYPE)


def declared_metrics(domains: Iterable[Domain]) -> tuple[Metric, ...]:
    """Return the metrics of kernel, HTTP server and domains, each once: some are shared."""
    own = (*KERNEL.metrics, *web.METRICS)
    theirs = (metric for domain in domains for metric in domain.metrics)
    return tuple(dict.fromkeys((*own, *theirs)))


async def read_gauges(
    pool: Pool, declared: Sequence[Metric], *, meter: Meter, log: Logger
) -> list[Sample]:
    """Return the lanes' depths, and what each domain's own statement returns.

    A gauge whose statement fails is left out, logged and counted.
    """
    samples = [sample for depth in await measure_lanes(pool) for sample in _depth_samples(depth)]
    for metric in declared:
        if isinstance(metric, Gauge) and metric.sql is not None:
            try:
                samples += await _read_gauge(pool, metric, metric.sql)
            except GAUGE_FAILED as failure:
                meter.count(kernel.GAUGE_FAILURES, metric=metric.name)
                log.warning("gauge.failed", metric=metric.name, **describe(failure))
    return samples


async def _read_gauge(pool: Pool, metric: Gauge, sql: LiteralString) -> list[Sample]:
    rows = await pool.fetch(sql, timeout=GAUGE_TIMEOUT.total_seconds())
    return [_row_sample(metric, dict(row.items())) for row in rows]


def _row_sample(metric: Gauge, row: dict[str, Any]) -> Sample:
    value = float(row.pop("value"))
    return Sample(metric.name, {label: str(text) for label, text in row.items()}, value)


def _depth_samples(depth: LaneDepth) -> Iterator[Sample]:
    lane = {"lane": depth.lane}
    for status in ("ready", "parked", "leased", "held", "dead"):
        labels = lane | {"status": status.upper()}
        yield Sample(kernel.DEPTH.name, labels, getattr(depth, status))
    yield Sample(kernel.DUE.name, lane, depth.due)
    yield Sample(kernel.PENDING.name, lane, depth.ready + depth.parked)
    yield Sample(kernel.OLDEST_SECONDS.name, lane, depth.oldest_due_seconds)
    yield Sample(kernel.BLOCKED.name, lane, depth.blocked_keys)
    yield Sample(kernel.DEAD.name, lane, depth.dead)
    yield Sample(kernel.STUCK.name, lane, depth.expired_items)


def _clock_samples(offset: float | None) -> Iterator[Sample]:
    """Yield the offset, unless it is unknown: without a claim or a poll."""
    if offset is not None:
        yield Sample(kernel.CLOCK_OFFSET.name, {}, offset)


def render(meter: Meter, samples: Iterable[Sample], declared: Sequence[Metric]) -> bytes:
    """Return the exposition."""
    families = _Families(declared)
    unlabelled = {
        metric.name for metric in declared if isinstance(metric, Counter) and not metric.labels
    }
    for name in sorted(unlabelled):
        families.add(name, {}, meter.counters.get((name, ()), 0))
    for (name, labels), value in sorted(meter.counters.items()):
        if name not in unlabelled or labels:
            families.add(name, dict(labels), value)
    for (name, labels), histogram in sorted(meter.histograms.items(), key=lambda pair: pair[0]):
        families.add_histogram(name, dict(labels), histogram)
    for sample in samples:
        families.add(sample.name, sample.labels, sample.value)
    return families.text()


class _Families(Collector):
    """Samples by metric, in the form that prometheus_client renders."""

    def __init__(self, declared: Sequence[Metric]) -> None:
        self._families = {metric.name: _family(metric) for metric in declared}

    def add(self, name: str, labels: dict[str, str], value: float) -> None:
        """Add one sample of a counter or gauge."""
        family = self._families.get(name) or self._undeclared(Counter(name, name))
        family.add_sample(name, labels, value)

    def add_histogram(self, name: str, labels: dict[str, str], histogram: Histogram) -> None:
        """Add the cumulative buckets, the sum and the count of a histogram."""
        metric = self._families.get(name) or self._undeclared(Distribution(name, name))
        below = 0
        for bound, count in zip((*BOUNDS, "+Inf"), histogram.buckets, strict=True):
            below += count
            metric.add_sample(f"{name}_bucket", labels | {"le": str(bound)}, below)
        metric.add_sample(f"{name}_sum", labels, histogram.total)
        metric.add_sample(f"{name}_count", labels, histogram.count)

    def _undeclared(self, metric: Metric) -> Family:
        """Show what was counted all the same: a metric that is missing is worse than no help."""
        return self._families.setdefault(metric.name, _family(metric))

    def collect(self) -> Iterable[Family]:
        """Return the metrics, as prometheus_client asks for them."""
        return self._families.values()

    def text(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def type_of(metric: Metric) -> str:
    """Return the type in the words of Prometheus."""
    match metric:
        case Counter():
            return "counter"
        case Distribution():
            return "histogram"
        case Gauge():
            return "gauge"


def _family(metric: Metric) -> Family:
    """Return an empty metric; the library adds a counter's `_total` itself."""
    is_counter = isinstance(metric, Counter)
    name = metric.name.removesuffix("_total") if is_counter else metric.name
    return Family(name, metric.help, type_of(metric))
