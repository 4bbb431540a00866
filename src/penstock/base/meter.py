"""Counts and durations of this process, kept in plain dictionaries; the API renders them."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

# Upper bounds in the metric's own unit; wide, because they serve milliseconds and seconds alike.
BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0)


@dataclass(slots=True)
class Histogram:
    """How many observations fell under each bound, their sum and their number."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class Meter:
    """What one process counts. Cheap enough for the hot path: one dictionary write a call."""

    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)
    histograms: dict[tuple[str, Labels], Histogram] = field(default_factory=dict)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (name, tuple(labels.items()))
        self.counters[key] = self.counters.get(key, 0) + by

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        self.observe_all(name, (value,), **labels)

    def observe_all(self, name: str, values: Iterable[float], **labels: str) -> None:
        """Add many observations to a histogram."""
        key = (name, tuple(labels.items()))
        histogram = self.histograms.get(key)
        if histogram is None:
            histogram = self.histograms[key] = Histogram()
        for value in values:
            histogram.buckets[bisect_left(BOUNDS, value)] += 1
            histogram.total += value
            histogram.count += 1
