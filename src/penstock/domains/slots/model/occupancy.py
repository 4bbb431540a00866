"""Which cells of a line are free, given the instants of the slots in it. Pure, but it remembers."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from penstock.domains.slots.model.cells import taken
from penstock.domains.slots.model.line import Line, Piece, Spot


class Occupancy:
    """The slots on a line. Instants are microseconds since the epoch, and no two are the same."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._times: list[int] = []  # Sorted.
        # What follows from the slots, kept so that a burst is not counted anew for each event.
        self._taken: dict[int, set[int]] = {}  # Of a piece, by its start.
        self._jumps: dict[int, int] = {}  # From the start of a full piece to one that may not be.

    def add(self, at: int) -> None:
        """Count one more slot."""
        piece = self._line.piece(at)
        if piece is not None and piece.starts in self._taken:
            cell = piece.stretch.grid.cell_of(at)
            if cell in self._taken[piece.starts] or cell not in piece.cells():
                del self._taken[piece.starts]
            else:
                # In a free cell it pushes nobody. Counting anew would say the same, in minutes
                # instead of seconds where a window has room for thousands.
                self._taken[piece.starts].add(cell)
        insort(self._times, at)

    def remove(self, at: int) -> None:
        """Count a slot no more."""
        self._times.remove(at)
        self.recount()

    def replace(self, times: Iterable[int]) -> None:
        """Count these slots and no others."""
        self._times = sorted(times)
        self.recount()

    def recount(self) -> None:
        """Forget what was true of the line before it changed."""
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
        while piece := self._line.piece(at):
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
