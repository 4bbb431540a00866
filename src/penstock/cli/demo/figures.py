"""The figures of the demo. Pure arithmetic on the instants at which handlers started."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BUCKET_SECONDS = 0.1
WINDOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The table at the end. `peak` is the busiest window of one second, wherever it begins."""

    accepted: int
    done: int
    lost: int
    repeated: int
    seconds: float
    mean_per_second: float
    peak: int
    rate: int
    burst: int

    @property
    def limit(self) -> int:
        """The maximum number of starts in any second."""
        return self.rate + self.burst

    @property
    def is_complete(self) -> bool:
        """True when every item was done exactly once."""
        return self.done == self.accepted and not self.lost and not self.repeated

    @property
    def is_above_limit(self) -> bool:
        """True when some second had more starts than the limit."""
        return self.peak > self.limit


@dataclass(slots=True)
class Record:
    """The calls of the handler: how many for each item, and at which instants."""

    calls: dict[int, int] = field(default_factory=dict[int, int])
    started_at: list[float] = field(default_factory=list[float])

    def note(self, item_id: int, at: float) -> None:
        """Add one call of the handler."""
        self.calls[item_id] = self.calls.get(item_id, 0) + 1
        self.started_at.append(at)

    def recent(self, now: float) -> int:
        """Return how many starts the last second had; they are nearly in order."""
        return len(self.started_at) - bisect_left(self.started_at, now - WINDOW_SECONDS)


def summarise(
    record: Record, accepted: Collection[int], *, done: int, rate: int, burst: int
) -> Figures:
    """Compare the accepted items with the started ones; `done` is counted by the database."""
    instants = sorted(record.started_at)
    seconds = instants[-1] - instants[0] if instants else 0.0
    return Figures(
        accepted=len(accepted),
        done=done,
        lost=len(set(accepted) - record.calls.keys()),
        repeated=sum(record.calls.values()) - len(record.calls),
        seconds=seconds,
        mean_per_second=(len(instants) - 1) / seconds if seconds else 0.0,
        peak=peak(instants),
        rate=rate,
        burst=burst,
    )


def peak(instants: Sequence[float], *, width: float = WINDOW_SECONDS) -> int:
    """Return the most starts in any half-open window of `width` seconds; `instants` are sorted."""
    most = first = 0
    for last, instant in enumerate(instants):
        while instant - instants[first] >= width:
            first += 1
        most = max(most, last - first + 1)
    return most


def rates(instants: Sequence[float], *, width: float = BUCKET_SECONDS) -> list[float]:
    """Return starts per second in each complete interval of `width` seconds."""
    if not instants:
        return []
    count = int((instants[-1] - instants[0]) / width)
    edges = [bisect_left(instants, instants[0] + number * width) for number in range(count + 1)]
    return [(after - before) / width for before, after in pairwise(edges)]


def sliding(instants: Sequence[float], *, step: float = BUCKET_SECONDS) -> list[tuple[float, int]]:
    """Return (end of the window, starts in the second before it) every `step` seconds."""
    if not instants:
        return []
    begin = instants[0]
    ends = [
        begin + WINDOW_SECONDS + number * step
        for number in range(int((instants[-1] - begin - WINDOW_SECONDS) / step) + 1)
    ]
    return [
        (end - begin, bisect_left(instants, end) - bisect_left(instants, end - WINDOW_SECONDS))
        for end in ends
    ]
