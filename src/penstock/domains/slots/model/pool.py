"""One pool and what happens to it: assign, cancel, change of rule, forecast, reflow. Pure.

Where chance has a part, the answer is the interval from which the database must have drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import md5
from typing import Literal

from penstock.base.errors import InvalidInput, PoolExhausted
from penstock.domains.slots.model.cells import to_instant, to_micros
from penstock.domains.slots.model.line import Line, Rule, Spot, Stretch, stretches
from penstock.domains.slots.model.occupancy import Occupancy

Refusal = Literal["beyond_horizon", "after_cut_off", "day_full", "exhausted"]
Outcome = Literal["assigned", "existing", "conflict"] | Refusal
Cancelled = Literal["cancelled", "already_cancelled", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a slot is: `position` microseconds into the window that starts at `window_at`.

    A drawn instant cannot be foretold: then `scheduled_at` is None, and `bounds` are what it is
    drawn from, the end excluded.
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
    """The place of an event."""

    event_id: str
    pool: str
    requested_at: datetime
    created_at: datetime
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a request ended. A conflict shows the slot that the event has; a refusal has none."""

    outcome: Outcome
    window_at: datetime | None = None
    position: int | None = None
    scheduled_at: datetime | None = None
    bounds: tuple[datetime, datetime] | None = None
    is_overbooked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What so many requests would get; `last_at` is None if there are not so many cells."""

    first_at: datetime | None
    last_at: datetime | None
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What a reflow does to one slot."""

    event_id: str
    before: Place
    after: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflow:
    """What a reflow does: it considers all slots from `frozen_until` on, and moves some."""

    frozen_until: datetime
    considered: int
    moves: list[Move]


@dataclass(slots=True)
class Ledger:
    """What pools share: an event has one slot, whichever pool it is in."""

    slots: dict[str, Slot] = field(default_factory=dict[str, Slot])
    cancelled: set[str] = field(default_factory=set[str])
    pools: "dict[str, Pool]" = field(default_factory=dict)


class Pool:
    """One pool. Pools that are to know each other's events are given the same ledger."""

    def __init__(
        self, rule: Rule, *, now: datetime, name: str = "default", ledger: Ledger | None = None
    ) -> None:
        self.name = name
        self.rule = rule
        self.ledger = Ledger() if ledger is None else ledger
        self.ledger.pools[name] = self
        self._line = Line()
        self.occupancy = Occupancy(self._line)
        self.change(rule, now=now)

    @property
    def slots(self) -> list[Slot]:
        """This pool's slots in time order."""
        own = [slot for slot in self.ledger.slots.values() if slot.pool == self.name]
        return sorted(own, key=lambda slot: slot.place.at)

    def assign(self, event_id: str, requested_at: datetime, *, now: datetime) -> Answer:
        """Book the first free cell for an event, or say why not; a repeat changes nothing."""
        return self.assign_batch([(event_id, requested_at)], now=now)[0]

    def assign_batch(
        self, requests: Sequence[tuple[str, datetime]], *, now: datetime
    ) -> list[Answer]:
        """Answer each request in its place; they are served by time, then by place.

        Of the requests of one event the first within the horizon speaks for all.
        """
        places: dict[str, int] = {}
        for place, (event_id, requested_at) in enumerate(requests):
            if event_id not in self.ledger.slots and requested_at <= now + self.rule.horizon:
                places.setdefault(event_id, place)
        booked: dict[int, Answer] = {}
        for place in sorted(places.values(), key=lambda place: max(requests[place][1], now)):
            booked[place] = self._book(*requests[place], now=now)
        answers: list[Answer] = []
        for place, (event_id, requested_at) in enumerate(requests):
            stored = self.ledger.slots.get(event_id)
            if place in booked:
                answers.append(booked[place])
            elif stored is None and event_id in places:
                answers.append(booked[places[event_id]])
            elif stored is None:
                answers.append(Answer(outcome="beyond_horizon"))
            elif (stored.pool, stored.requested_at) == (self.name, requested_at):
                answers.append(_answer("existing", stored.place))
            else:
                answers.append(_answer("conflict", stored.place))
        return answers

    def change(self, rule: Rule, *, now: datetime) -> datetime:
        """Let another rule hold, and return from when on; no slot moves.

        With the window size that is in force now that is the start of the present window, with
        another one the start of its next.
        """
        starts = rule.grid.window_of(to_micros(now))
        present = self._line.in_force(to_micros(now))
        if present is not None and present.grid.size != rule.grid.size:
            starts += rule.grid.size
        if next(stretches(rule, starts), None) is None:
            raise InvalidInput("calendar", "leaves no place for a slot")
        self.rule = rule
        self._line.put(rule, starts=starts)
        self.occupancy.recount()
        return to_instant(starts)

    def cancel(self, event_id: str) -> Cancelled:
        """Give an event's slot back, whichever pool it is in; the event may then ask anew."""
        slot = self.ledger.slots.pop(event_id, None)
        if slot is None:
            return "already_cancelled" if event_id in self.ledger.cancelled else "unknown"
        self.ledger.cancelled.add(event_id)
        self.ledger.pools[slot.pool].occupancy.remove(slot.place.at)
        return "cancelled"

    def forecast(self, count: int, from_at: datetime, *, now: datetime) -> Forecast:
        """Say which cells `count` requests for one instant would get; books nothing."""
        earliest = to_micros(max(from_at, now))
        first_at: datetime | None = None
        windows: set[int] = set()
        for piece in self._line.pieces(earliest):
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
        """Lay all slots after `freeze_until`, rounded up to a window's start, anew in their order.

        They close up or spread out as the present rule says; all of them move, or none.
        """
        thawed = self._thawed(to_micros(max(freeze_until, now)))
        later = [slot for slot in self.slots if slot.place.at >= thawed]
        next_from = thawed
        moves: list[Move] = []
        for slot in later:
            spot = self._line.first_spot(max(self._earliest(slot, thawed), next_from))
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
        """Return the next edge at or after an instant: a window's, or that of open time."""
        stretch = next(self._line.open_from(at), None)
        if stretch is None:
            return at
        if at <= stretch.starts:
            return stretch.starts
        return min(stretch.ends, -(-at // stretch.grid.size) * stretch.grid.size)

    def _earliest(self, slot: Slot, thawed: int) -> int:
        """Return before when a slot must not be: who was too late for a day stays too late."""
        wanted = to_micros(max(slot.requested_at, slot.created_at))
        day = self._line.day_from(wanted)
        if not day:
            return thawed
        is_put_off = day[0].policy == "next_open_window" and _is_late(day, wanted)
        return day[-1].ends if is_put_off else wanted

    def _carry_out(self, moves: list[Move]) -> None:
        slots = self.ledger.slots
        for move in moves:
            slots[move.event_id] = replace(slots[move.event_id], place=move.after)
        self.occupancy.replace(slot.place.at for slot in self.slots)

    def _book(self, event_id: str, requested_at: datetime, *, now: datetime) -> Answer:
        place = self._find(event_id, to_micros(max(requested_at, now)))
        if isinstance(place, str):
            return Answer(outcome=place)
        self.ledger.slots[event_id] = Slot(
            event_id=event_id,
            pool=self.name,
            requested_at=requested_at,
            created_at=now,
            place=place,
        )
        self.occupancy.add(place.at)
        return _answer("assigned", place)

    def _find(self, event_id: str, earliest: int) -> Place | Refusal:
        day = self._line.day_from(earliest)
        if not day:
            return "exhausted"
        policy, day_ends, is_late = day[0].policy, day[-1].ends, _is_late(day, earliest)
        if policy == "reject" and is_late:
            return "after_cut_off"
        is_put_off = policy == "next_open_window" and is_late
        spot = self.occupancy.first_free(day_ends if is_put_off else earliest)
        if policy != "next_open_window" and (spot is None or spot.at >= day_ends):
            return "day_full" if policy == "reject" else self._overbook(event_id, day, earliest)
        return "exhausted" if spot is None else _place_at(spot, earliest)

    def _overbook(self, event_id: str, day: list[Stretch], earliest: int) -> Place:
        """Place an event beside a cell of the day; which one depends on its id, to spread them."""
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


def _answer(outcome: Outcome, place: Place) -> Answer:
    return Answer(
        outcome=outcome,
        window_at=place.window_at,
        position=place.position,
        scheduled_at=place.scheduled_at,
        bounds=place.bounds,
        is_overbooked=place.is_overbooked,
    )
