"""Counts and durations of this process, kept in plain dictionaries; the API renders them."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import LiteralString, TypeAlias

Labels = tuple[tuple[str, str], ...]

# Upper bounds in the metric's own unit; wide, because they serve both milliseconds and seconds.
BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Counter:
    """A declared counter; its owner counts it with `Meter.count`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()  # One without labels is shown from the start, as zero.


@dataclass(frozen=True, slots=True)
class Distribution:
    """A declared histogram; its owner adds to it with `Meter.observe`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gauge:
    """A declared gauge. Its statement, if any, is run at a scrape and must be cheap.

    It returns one row per set of labels: a column `value`, and a text column for each label.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    sql: LiteralString | None = field(default=None, kw_only=True)


Metric: TypeAlias = Counter | Distribution | Gauge


@dataclass(slots=True)
class Histogram:
    """The number of observations under each bound, their sum and their count."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class Meter:
    """The metrics of one process. Cheap enough for the hot path: one dictionary write per call."""

    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)
    histograms: dict[tuple[str, Labels], Histogram] = field(default_factory=dict)

    def count(self, metric: Counter, /, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (metric.name, tuple(labels.items()))
        self.counters[key] = self.counters.get(key, 0) + by

    def observe(self, metric: Distribution, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        self.observe_all(metric, (value,), **labels)

    def observe_all(self, metric: Distribution, values: Iterable[float], /, **labels: str) -> None:
        """Add many observations to a histogram."""
        key = (metric.name, tuple(labels.items()))
        histogram = self.histograms.get(key)
        if histogram is None:
            histogram = self.histograms[key] = Histogram()
        for value in values:
            histogram.buckets[bisect_left(BOUNDS, value)] += 1
            histogram.total += value
            histogram.count += 1
