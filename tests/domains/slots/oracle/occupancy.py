"""Which cells of a timeline are free, given the instants of its slots. Pure, with a cache."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from tests.domains.slots.oracle.cells import taken
from tests.domains.slots.oracle.timeline import Piece, Spot, Timeline


class Occupancy:
    """The slots on a timeline. Instants are microseconds since the epoch, and unique."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._times: list[int] = []  # Sorted.
        # Derived from the slots, cached so that a burst is not recounted for each event.
        self._taken: dict[int, set[int]] = {}  # Of a piece, by its start.
        self._jumps: dict[int, int] = {}  # From the start of a full piece to one with free cells.

    def add(self, at: int) -> None:
        """Add a slot."""
        piece = self._timeline.piece(at)
        if piece is not None and piece.starts in self._taken:
            cell = piece.stretch.grid.cell_of(at)
            if cell in self._taken[piece.starts] or cell not in piece.cells():
                del self._taken[piece.starts]
            else:
                # A slot in a free cell displaces no other. A recount gives the same result, but
                # takes minutes instead of seconds for windows with thousands of cells.
                self._taken[piece.starts].add(cell)
        insort(self._times, at)

    def remove(self, at: int) -> None:
        """Remove a slot."""
        self._times.remove(at)
        self.recount()

    def replace(self, times: Iterable[int]) -> None:
        """Replace all slots by these."""
        self._times = sorted(times)
        self.recount()

    def recount(self) -> None:
        """Drop the cache, after slots or the timeline changed."""
        self._taken.clear()
        self._jumps.clear()

    def has(self, at: int) -> bool:
        """Say whether a slot is at exactly this instant."""
        rank = bisect_left(self._times, at)
        return self._times[rank : rank + 1] == [at]

    def first_free(self, earliest: int) -> Spot | None:
        """Return the first free cell at or after an instant."""
        at = earliest
        full: list[int] = []
        while piece := self._timeline.piece(at):
            cell = next(self.free(piece, earliest), None)
            if cell is not None:
                self._jumps.update((start, piece.starts) for start in full)
                return Spot(piece=piece, cell=cell)
            if len(self._taken_in(piece)) == len(piece.cells()):
                full.append(piece.starts)
            at = self._jumps.get(piece.starts, piece.ends)
        return None

    def free(self, piece: Piece, earliest: int) -> Iterator[int]:
        """Yield the free cells of a piece that begin at an instant or later."""
        taken_here = self._taken_in(piece)
        return (cell for cell in piece.cells(earliest=earliest) if cell not in taken_here)

    def _taken_in(self, piece: Piece) -> set[int]:
        if piece.starts not in self._taken:
            start, end = (bisect_left(self._times, edge) for edge in (piece.starts, piece.ends))
            cells = map(piece.stretch.grid.cell_of, self._times[start:end])
            self._taken[piece.starts] = taken(cells, piece.cells())
        return self._taken[piece.starts]
