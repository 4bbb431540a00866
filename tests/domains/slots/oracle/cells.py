"""Cells: even division of windows, in whole microseconds since the epoch. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(at: datetime) -> int:
    """Return the microseconds since the epoch."""
    return (at - EPOCH) // MICROSECOND


def to_instant(micros: int) -> datetime:
    """Return the instant in UTC."""
    return EPOCH + micros * MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Windows of `size` counted from the epoch, each with `capacity` cells, numbered likewise."""

    size: int
    capacity: int

    def instant_of(self, cell: int) -> int:
        """Return when a cell begins, rounded up to a microsecond."""
        window, position = divmod(cell, self.capacity)
        return window * self.size - (-position * self.size // self.capacity)

    def before(self, at: int) -> int:
        """Return the number of the first cell at or after an instant."""
        window, elapsed = divmod(at - 1, self.size)
        return window * self.capacity + elapsed * self.capacity // self.size + 1

    def cells(self, starts: int, ends: int) -> range:
        """Return the numbers of the cells that begin at `starts` or later, and before `ends`."""
        return range(self.before(starts), self.before(ends))

    def cell_of(self, at: int) -> int:
        """Return the cell that an instant falls into; it begins at that instant or before."""
        window, elapsed = divmod(at, self.size)
        return window * self.capacity + elapsed * self.capacity // self.size

    def window_of(self, at: int) -> int:
        """Return the start of an instant's window."""
        return at // self.size * self.size


def taken(wanted: Iterable[int], available: range) -> set[int]:
    """Return which of the available cells are taken by slots that fall into the wanted ones.

    Each slot takes its own cell or the next free one; slots that find none before the end take the
    last free ones. The result depends neither on the order of arrival nor on the capacity under
    which a slot was booked.
    """
    if not available:
        return set()
    first, last = available[0], available[-1]
    cells = sorted(max(cell, first) for cell in wanted)
    if len(cells) >= len(available):
        return set(available)
    found: set[int] = set()
    lead = first
    for index, cell in enumerate(cells):
        lead = max(lead, cell - index)
        found.add(min(index + lead, last - len(cells) + 1 + index))
    return found
