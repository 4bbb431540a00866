"""The timeline of a pool: its stretches of open time and the cells in them. Pure.

A piece is the intersection of one window and one stretch; a spot is one cell of a piece.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import takewhile
from typing import Literal

from penstock.calendar.calendar import Calendar, CutOffPolicy
from penstock.calendar.instant import END_AT
from penstock.calendar.periods import periods
from tests.domains.slots.oracle.cells import MICROSECOND, Grid, to_instant, to_micros

Spacing = Literal["even", "random"]

_PLACE_WITHIN = timedelta(days=3653)
_LONGEST_DAY = timedelta(days=2) // MICROSECOND  # Hours may end as late as the end of the next day.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One version of a pool's config."""

    window_size: timedelta
    max_per_window: int
    spacing: Spacing = "even"
    calendar: Calendar | None = None
    horizon: timedelta = timedelta(days=366)
    is_strict: bool = False

    @property
    def grid(self) -> Grid:
        """The rule's windows and cells, regardless of opening hours."""
        return Grid(size=self.window_size // MICROSECOND, capacity=self.max_per_window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Open from `starts` until just before `ends`, under one rule; no `day` without a calendar."""

    starts: int
    ends: int
    grid: Grid
    spacing: Spacing
    day: date | None = None
    cut_off: int | None = None
    policy: CutOffPolicy = "next_open_window"

    def cells(self, *, earliest: int = 0) -> range:
        """Return the numbers of the cells that begin in it, at `earliest` or later."""
        return self.grid.cells(max(earliest, self.starts), self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The part of one window that lies in one stretch."""

    starts: int
    ends: int
    stretch: Stretch

    def cells(self, *, earliest: int = 0) -> range:
        """Return the numbers of the cells that begin in it, at `earliest` or later."""
        return self.stretch.grid.cells(max(earliest, self.starts), self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One cell of a piece."""

    piece: Piece
    cell: int

    @property
    def at(self) -> int:
        """When the cell begins."""
        return self.piece.stretch.grid.instant_of(self.cell)


def stretches(rule: Rule, starts: int) -> Iterator[Stretch]:
    """Yield the open time under a rule from an instant on, except parts too short for a cell."""
    return (stretch for stretch in _open_time(rule, starts, END_AT) if stretch.cells())


def has_place(rule: Rule, starts: int) -> bool:
    """Say whether a rule has a cell from an instant on.

    Hours repeat each week, and holidays and blackouts end: what has no cell within these years has
    none until the end of time, which would take a second to walk to.
    """
    until = min(to_instant(starts) + _PLACE_WITHIN, END_AT)
    return any(stretch.cells() for stretch in _open_time(rule, starts, until))


def _open_time(rule: Rule, starts: int, until: datetime) -> Iterator[Stretch]:
    if rule.calendar is None:
        ends = to_micros(END_AT)
        yield Stretch(starts=starts, ends=ends, grid=rule.grid, spacing=rule.spacing)
        return
    for period in periods(rule.calendar, to_instant(starts), until):
        yield Stretch(
            starts=to_micros(period.starts_at),
            ends=to_micros(period.ends_at),
            grid=rule.grid,
            spacing=rule.spacing,
            day=period.day,
            cut_off=None if period.cut_off_at is None else to_micros(period.cut_off_at),
            policy=rule.calendar.cut_off_policy,
        )


class Timeline:
    """A pool's stretches in time order, computed on demand."""

    def __init__(self) -> None:
        self._known: list[Stretch] = []
        self._more: Iterator[Stretch] = iter(())

    def put(self, rule: Rule, *, starts: int) -> None:
        """Apply a rule from an instant on; earlier stretches stay and end there."""
        self._compute_until(starts)
        before = [stretch for stretch in self._known if stretch.starts < starts]
        cut = [replace(stretch, ends=min(stretch.ends, starts)) for stretch in before]
        self._known = [stretch for stretch in cut if stretch.cells()]
        self._more = stretches(rule, starts)

    def in_force(self, at: int) -> Stretch | None:
        """Return the stretch that contains an instant, or the last one before it."""
        self._compute_until(at)
        begun = [stretch for stretch in self._known if stretch.starts <= at]
        return begun[-1] if begun else None

    def open_from(self, at: int) -> Iterator[Stretch]:
        """Yield the stretch that contains an instant, if any, and all that follow."""
        self._compute_until(at)
        index = bisect_right(self._known, at, key=lambda stretch: stretch.ends)
        while index < len(self._known) or self._compute_next():
            yield self._known[index]
            index += 1

    def day_from(self, at: int) -> list[Stretch]:
        """Return the rest of the day that contains an instant; in closed time, the next day.

        A change of time zone may put another date between two parts of a day; that date then
        counts as part of the day. A stretch without a calendar has no day and is returned alone.
        """
        rest = self.open_from(at)
        first = next(rest, None)
        if first is None or first.day is None:
            return [] if first is None else [first]
        near = [first, *takewhile(lambda stretch: stretch.ends < first.ends + _LONGEST_DAY, rest)]
        last = max(index for index, stretch in enumerate(near) if stretch.day == first.day)
        return near[: last + 1]

    def piece(self, at: int) -> Piece | None:
        """Return the piece that contains an instant, or the next one."""
        stretch = next(self.open_from(at), None)
        if stretch is None:
            return None
        window = stretch.grid.window_of(max(at, stretch.starts))
        return Piece(
            starts=max(window, stretch.starts),
            ends=min(window + stretch.grid.size, stretch.ends),
            stretch=stretch,
        )

    def pieces(self, at: int) -> Iterator[Piece]:
        """Yield the piece that contains an instant, if any, and all that follow."""
        while piece := self.piece(at):
            yield piece
            at = piece.ends

    def first_spot(self, at: int) -> Spot | None:
        """Return the first cell at or after an instant, free or taken."""
        spots = (
            Spot(piece=piece, cell=cell)
            for piece in self.pieces(at)
            for cell in piece.cells(earliest=at)
        )
        return next(spots, None)

    def _compute_until(self, at: int) -> None:
        while (not self._known or self._known[-1].ends <= at) and self._compute_next():
            pass

    def _compute_next(self) -> bool:
        found = next(self._more, None)
        if found is not None:
            self._known.append(found)
        return found is not None
