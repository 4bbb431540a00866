"""One pool and its operations: assign, cancel, change of rule, forecast, reflow. Pure.

For random spacing the result is the interval from which the database must have drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import md5
from typing import Literal

from penstock.base.errors import InvalidInput
from penstock.domains.slots.errors import PoolExhausted
from tests.domains.slots.oracle.cells import to_instant, to_micros
from tests.domains.slots.oracle.occupancy import Occupancy
from tests.domains.slots.oracle.timeline import Rule, Spot, Stretch, Timeline, has_place

Refusal = Literal["beyond_horizon", "after_cut_off", "day_full", "exhausted"]
Outcome = Literal["assigned", "existing", "conflict"] | Refusal
Cancelled = Literal["cancelled", "already_cancelled", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a slot is: `position` microseconds into the window that starts at `window_at`.

    A random instant cannot be predicted: then `scheduled_at` is None, and `bounds` is the interval
    that it is drawn from, the end excluded.
    """

    window_at: datetime
    position: int
    scheduled_at: datetime | None
    bounds: tuple[datetime, datetime] | None = None
    is_overbooked: bool = False

    @property
    def at(self) -> int:
        """The instant that counts for capacity, in microseconds since the epoch."""
        return to_micros(self.window_at) + self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The place of a caller's event."""

    event_id: str
    pool: str
    requested_at: datetime
    created_at: datetime
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The result of a request. A conflict has the event's existing slot; a refusal has none."""

    outcome: Outcome
    window_at: datetime | None = None
    position: int | None = None
    scheduled_at: datetime | None = None
    bounds: tuple[datetime, datetime] | None = None
    is_overbooked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The slots that `count` requests would get; `last_at` is None if there are fewer cells."""

    first_at: datetime | None
    last_at: datetime | None
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One slot moved by a reflow."""

    event_id: str
    before: Place
    after: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflow:
    """The result of a reflow: it considers all slots from `frozen_until` on, and moves some."""

    frozen_until: datetime
    considered: int
    moves: list[Move]


@dataclass(slots=True)
class Ledger:
    """State shared by pools: an event has at most one slot over all of them."""

    slots: dict[str, Slot] = field(default_factory=dict[str, Slot])
    cancelled: set[str] = field(default_factory=set[str])
    pools: "dict[str, Pool]" = field(default_factory=dict)


class Pool:
    """One pool. Pools in one database share a ledger."""

    def __init__(
        self, rule: Rule, *, now: datetime, name: str = "default", ledger: Ledger | None = None
    ) -> None:
        self.name = name
        self.rule = rule
        self.ledger = Ledger() if ledger is None else ledger
        self.ledger.pools[name] = self
        self._timeline = Timeline()
        self.occupancy = Occupancy(self._timeline)
        self.change(rule, now=now)

    @property
    def slots(self) -> list[Slot]:
        """This pool's slots in time order."""
        own = [slot for slot in self.ledger.slots.values() if slot.pool == self.name]
        return sorted(own, key=lambda slot: slot.place.at)

    def assign(self, event_id: str, requested_at: datetime, *, now: datetime) -> Assignment:
        """Book the first free cell for an event, or return why not; a repeat changes nothing."""
        return self.assign_batch([(event_id, requested_at)], now=now)[0]

    def assign_batch(
        self, requests: Sequence[tuple[str, datetime]], *, now: datetime
    ) -> list[Assignment]:
        """Return a result for each request, in order; cells are given by time, then by order.

        Of several requests for one event, the first within the horizon counts.
        """
        places: dict[str, int] = {}
        for place, (event_id, requested_at) in enumerate(requests):
            if event_id not in self.ledger.slots and requested_at <= now + self.rule.horizon:
                places.setdefault(event_id, place)
        booked: dict[int, Assignment] = {}
        for place in sorted(places.values(), key=lambda place: max(requests[place][1], now)):
            booked[place] = self._book(*requests[place], now=now)
        results: list[Assignment] = []
        for place, (event_id, requested_at) in enumerate(requests):
            stored = self.ledger.slots.get(event_id)
            if place in booked:
                results.append(booked[place])
            elif stored is None and event_id in places:
                results.append(booked[places[event_id]])
            elif stored is None:
                results.append(Assignment(outcome="beyond_horizon"))
            else:
                is_same = (stored.pool, stored.requested_at) == (self.name, requested_at)
                is_conflict = self.rule.is_strict and not is_same
                results.append(_assignment("conflict" if is_conflict else "existing", stored.place))
        return results

    def change(self, rule: Rule, *, now: datetime) -> datetime:
        """Apply another rule, and return from when on it is effective; no slot moves.

        With an unchanged window size that is the start of the present window, otherwise the start
        of the next window of the new size.
        """
        starts = rule.grid.window_of(to_micros(now))
        present = self._timeline.in_force(to_micros(now))
        if present is not None and present.grid.size != rule.grid.size:
            starts += rule.grid.size
        if not has_place(rule, starts):
            raise InvalidInput("calendar", "leaves no place for a slot")
        self.rule = rule
        self._timeline.put(rule, starts=starts)
        self.occupancy.recount()
        return to_instant(starts)

    def cancel(self, event_id: str) -> Cancelled:
        """Free an event's slot, in any pool; the event may then request another."""
        slot = self.ledger.slots.pop(event_id, None)
        if slot is None:
            return "already_cancelled" if event_id in self.ledger.cancelled else "unknown"
        self.ledger.cancelled.add(event_id)
        self.ledger.pools[slot.pool].occupancy.remove(slot.place.at)
        return "cancelled"

    def forecast(self, count: int, from_at: datetime, *, now: datetime) -> Forecast:
        """Return which cells `count` requests for one instant would get; books nothing."""
        earliest = to_micros(max(from_at, now))
        first_at: datetime | None = None
        windows: set[int] = set()
        for piece in self._timeline.pieces(earliest):
            grid = piece.stretch.grid
            free = list(self.occupancy.free(piece, earliest))
            if free:
                windows.add(grid.window_of(piece.starts))
                first_at = first_at or to_instant(grid.instant_of(free[0]))
            if count <= len(free):
                last_at = to_instant(grid.instant_of(free[count - 1]))
                return Forecast(first_at=first_at, last_at=last_at, windows=len(windows))
            count -= len(free)
        return Forecast(first_at=first_at, last_at=None, windows=len(windows))

    def reflow(self, freeze_until: datetime, *, now: datetime, is_dry_run: bool = False) -> Reflow:
        """Reassign all slots from `freeze_until`, rounded up to a window's start, in their order.

        All moves are made, or none.
        """
        thawed = self._thawed(to_micros(max(freeze_until, now)))
        later = [slot for slot in self.slots if slot.place.at >= thawed]
        next_from = thawed
        moves: list[Move] = []
        for slot in later:
            spot = self._timeline.first_spot(max(self._earliest(slot, thawed), next_from))
            if spot is None:
                raise PoolExhausted(self.name)
            next_from = spot.at + 1
            if spot.at != slot.place.at:
                after = _place_at(spot, to_micros(slot.requested_at))
                moves.append(Move(event_id=slot.event_id, before=slot.place, after=after))
        if not is_dry_run:
            self._carry_out(moves)
        return Reflow(frozen_until=to_instant(thawed), considered=len(later), moves=moves)

    def _thawed(self, at: int) -> int:
        """Return the next boundary of a window or of open time, at or after an instant."""
        stretch = next(self._timeline.open_from(at), None)
        if stretch is None:
            return at
        if at <= stretch.starts:
            return stretch.starts
        return min(stretch.ends, -(-at // stretch.grid.size) * stretch.grid.size)

    def _earliest(self, slot: Slot, thawed: int) -> int:
        """Return a slot's lower bound: a slot that missed a day's cut-off stays after that day."""
        wanted = to_micros(max(slot.requested_at, slot.created_at))
        day = self._timeline.day_from(wanted)
        if not day:
            return thawed
        is_postponed = day[0].policy == "next_open_window" and _is_late(day, wanted)
        return day[-1].ends if is_postponed else wanted

    def _carry_out(self, moves: list[Move]) -> None:
        slots = self.ledger.slots
        for move in moves:
            slots[move.event_id] = replace(slots[move.event_id], place=move.after)
        self.occupancy.replace(slot.place.at for slot in self.slots)

    def _book(self, event_id: str, requested_at: datetime, *, now: datetime) -> Assignment:
        place = self._find(event_id, to_micros(max(requested_at, now)))
        if isinstance(place, str):
            return Assignment(outcome=place)
        self.ledger.slots[event_id] = Slot(
            event_id=event_id,
            pool=self.name,
            requested_at=requested_at,
            created_at=now,
            place=place,
        )
        self.occupancy.add(place.at)
        return _assignment("assigned", place)

    def _find(self, event_id: str, earliest: int) -> Place | Refusal:
        day = self._timeline.day_from(earliest)
        if not day:
            return "exhausted"
        policy, day_ends, is_late = day[0].policy, day[-1].ends, _is_late(day, earliest)
        if policy == "reject" and is_late:
            return "after_cut_off"
        is_postponed = policy == "next_open_window" and is_late
        spot = self.occupancy.first_free(day_ends if is_postponed else earliest)
        if policy != "next_open_window" and (spot is None or spot.at >= day_ends):
            return "day_full" if policy == "reject" else self._overbook(event_id, day, earliest)
        return "exhausted" if spot is None else _place_at(spot, earliest)

    def _overbook(self, event_id: str, day: list[Stretch], earliest: int) -> Place:
        """Place an event next to a cell of the day, chosen by the hash of its id to spread them."""
        at, grid = earliest, day[0].grid
        choices = [stretch.cells(earliest=earliest) for stretch in day]
        if any(choices):
            choice = _hash(event_id) % sum(len(cells) for cells in choices)
            for stretch, cells in zip(day, choices, strict=True):
                if 0 <= choice < len(cells):
                    at, grid = stretch.grid.instant_of(cells[choice]) + 1, stretch.grid
                choice -= len(cells)
        while self.occupancy.has(at):
            at += 1
        window = grid.window_of(at)
        return Place(
            window_at=to_instant(window),
            position=at - window,
            scheduled_at=to_instant(at),
            is_overbooked=True,
        )


def _is_late(day: list[Stretch], at: int) -> bool:
    cut_off = day[0].cut_off
    return cut_off is not None and at >= cut_off


def _place_at(spot: Spot, earliest: int) -> Place:
    stretch = spot.piece.stretch
    window = stretch.grid.window_of(spot.at)
    is_drawn = stretch.spacing == "random"
    lowest, highest = max(spot.piece.starts, earliest), spot.piece.ends
    return Place(
        window_at=to_instant(window),
        position=spot.at - window,
        scheduled_at=None if is_drawn else to_instant(spot.at),
        bounds=(to_instant(lowest), to_instant(highest)) if is_drawn else None,
    )


def _hash(event_id: str) -> int:
    digest = md5(event_id.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16)


def _assignment(outcome: Outcome, place: Place) -> Assignment:
    return Assignment(
        outcome=outcome,
        window_at=place.window_at,
        position=place.position,
        scheduled_at=place.scheduled_at,
        bounds=place.bounds,
        is_overbooked=place.is_overbooked,
    )
