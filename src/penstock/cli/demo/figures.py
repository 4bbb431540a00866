"""The figures of the demo. Pure arithmetic on what was counted, and on instants in seconds."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.cli.demo.tally import Tally

WINDOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The table at the end.

    What was paid is counted in the ledger of the rail, events and mails where they arrive.
    `events_again` and `mails_again` are arrivals of an id that had come before: receivers recognise
    them by it. `peak` is the busiest window of one second, wherever it begins. `workflows` are the
    ids in Temporal's own list, and `runs_most` the runs of the one that has most of them; both are
    None without Temporal.
    """

    payments: int
    scheduled: int
    executed: int
    paid_once: int
    paid_twice: int
    lost: int
    events_delivered: int
    events_expected: int
    events_again: int
    mails_sent: int
    mails_expected: int
    mails_again: int
    workers_killed: int
    seconds: float
    mean_per_second: float
    peak: int
    rate: int
    limit: int
    workflows: int | None
    runs_most: int | None

    @property
    def is_complete(self) -> bool:
        """True when every payment was paid exactly once, and all notifications arrived.

        On Temporal, each must also have one workflow with one run.
        """
        return (
            self.payments == self.scheduled == self.executed == self.paid_once
            and not self.paid_twice
            and not self.lost
            and self.events_delivered == self.events_expected
            and self.mails_sent == self.mails_expected
            and (self.workflows is None or (self.workflows, self.runs_most) == (self.payments, 1))
        )

    @property
    def is_above_limit(self) -> bool:
        """True when some second had more executions than the limit."""
        return self.peak > self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was counted on the way: ids of scheduled payments, and tallies of what arrived.

    `runs` are those of each workflow on Temporal, if payments were executed there.
    """

    scheduled: Collection[str]
    executed: int
    paid: Tally
    events: Tally
    mails: Tally
    workers_killed: int
    runs: Tally | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for, and so what has to arrive."""

    payments: int
    events: int
    mails: int
    rate: int
    limit: int


def summarise(counted: Counted, wanted: Wanted, *, instants: Sequence[float]) -> Figures:
    """Compare what was counted with what was wanted; `instants` of executions are sorted."""
    seconds = instants[-1] - instants[0] if instants else 0.0
    paid, runs = counted.paid, counted.runs
    return Figures(
        payments=wanted.payments,
        scheduled=len(counted.scheduled),
        executed=counted.executed,
        paid_once=paid.once,
        paid_twice=paid.distinct - paid.once,
        lost=len(set(counted.scheduled) - paid.counts.keys()),
        events_delivered=counted.events.distinct,
        events_expected=wanted.events,
        events_again=counted.events.again,
        mails_sent=counted.mails.distinct,
        mails_expected=wanted.mails,
        mails_again=counted.mails.again,
        workers_killed=counted.workers_killed,
        seconds=seconds,
        mean_per_second=(len(instants) - 1) / seconds if seconds else 0.0,
        peak=peak(instants),
        rate=wanted.rate,
        limit=wanted.limit,
        workflows=None if runs is None else runs.distinct,
        runs_most=None if runs is None else runs.most,
    )


def peak(instants: Sequence[float], *, width: float = WINDOW_SECONDS) -> int:
    """Return the most in any half-open window of `width` seconds; `instants` are sorted."""
    most = first = 0
    for last, instant in enumerate(instants):
        while instant - instants[first] >= width:
            first += 1
        most = max(most, last - first + 1)
    return most


def rates(
    instants: Sequence[float], *, begin: float, end: float, width: float = WINDOW_SECONDS
) -> list[float]:
    """Return how many per second there are in each interval of `width` seconds."""
    count = max(1, int((end - begin) / width) + 1)
    edges = [bisect_left(instants, begin + number * width) for number in range(count + 1)]
    return [(after - before) / width for before, after in pairwise(edges)]
