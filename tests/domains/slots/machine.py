"""Applies the same calls to the database and to the oracle, and compares them after each."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import asyncpg
import msgspec

from penstock.base.errors import InvalidInput
from penstock.calendar.check import check
from penstock.calendar.periods import open_periods
from penstock.domains.slots.assign import SlotRequest, assign_many
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import SET_CONFIG, _columns, read_config
from penstock.domains.slots.errors import UnknownSlot
from penstock.domains.slots.forecast import forecast
from penstock.domains.slots.inspect import list_moves
from penstock.domains.slots.reflow import reflow
from penstock.postgres.pool import Connection
from tests.domains.slots.histories import DAY, MICROSECOND, START, Step
from tests.domains.slots.oracle import Assignment, Ledger, Place, Pool, Rule
from tests.domains.slots.oracle.cells import to_micros

T = TypeVar("T")

WHO = "oracle"
POOLS = ["left", "right"]
KNOWN_AHEAD = 40 * DAY  # Of opening periods; requests beyond make the verbs extend them.

SLOTS = """
SELECT slot_pool.name AS pool, slot.event_id, requested_at, scheduled_at, window_at, position,
    created_at
FROM penstock.slot JOIN penstock.slot_pool USING (pool_id)
WHERE slot_pool.name = ANY ($1)
"""
RUNS = """
SELECT name, first_cell, last_cell
FROM penstock.slot_run JOIN penstock.slot_pool USING (pool_id)
WHERE name = ANY ($1)
ORDER BY name, first_cell
"""
FORGET_RUNS = """
DELETE FROM penstock.slot_run USING penstock.slot_pool AS pool
WHERE slot_run.pool_id = pool.pool_id AND name = ANY ($1)
"""
# Only until the end of the last stretch that has a slot: a calendar has years of stretches.
COUNT_RUNS = """
SELECT penstock.mark_cells(pool_id, '2000-01-01Z', coalesce((
    SELECT min(ends_at) FROM penstock.slot_stretch AS stretch
    WHERE stretch.pool_id = pool.pool_id AND ends_at > (
        SELECT max(window_at + position * interval '1 microsecond') FROM penstock.slot
        WHERE slot.pool_id = pool.pool_id)), '2200-01-01Z'))
FROM penstock.slot_pool AS pool
WHERE name = ANY ($1)
"""


class Machine:
    """Two pools, in the database and in the oracle, with the same history."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.now = START
        self.ledger = Ledger()
        self.pools: dict[str, Pool] = {}
        self.bursts = 0
        self.known: dict[str, tuple[Place, datetime]] = {}  # The last known slot of each event.

    async def play(self, rules: tuple[Rule, Rule], history: list[Step]) -> None:
        """Apply each step to both, and compare their whole state after it."""
        await self.make_pools(*rules)
        for method, arguments in history:
            await getattr(self, method)(**arguments)
            await self.check_that_slots_are_equal()
            self.check_that_no_instant_is_booked_twice()
            await self.check_that_runs_equal_a_recount()

    # ------------------------------------------------------------------------------- rules

    async def make_pools(self, left: Rule, right: Rule) -> None:
        for name, wish in zip(POOLS, (left, right), strict=True):
            plain = replace(wish, calendar=None)
            self.pools[name] = Pool(plain, now=self.now, name=name, ledger=self.ledger)
            await self._set(name, plain)
            await self.change(name, {"calendar": wish.calendar})

    async def change(self, name: str, fields: dict[str, Any]) -> None:
        """Change a rule; rejected, without effect, if the calendar leaves no time or no cell."""
        wish = replace(self.pools[name].rule, **fields)
        try:
            if wish.calendar is not None:
                check(wish.calendar, now=self.now)
            effective_at = self.pools[name].change(wish, now=self.now)
        except InvalidInput:
            effective_at = None

        assert await self._set(name, wish) == effective_at

    async def _set(self, name: str, wish: Rule) -> datetime | None:
        """Return from when on the rule is effective; None if it is rejected.

        The verb does the same, but with ten years of opening periods: thousands of rows each time.
        """
        calendar = wish.calendar
        periods = None
        try:
            if calendar is not None:
                check(calendar, now=self.now)
                periods = open_periods(calendar, self.now - DAY, self.now + KNOWN_AHEAD)
            async with self.db.transaction():
                await self.db.execute(
                    SET_CONFIG,
                    name,
                    wish.max_per_window,
                    wish.window_size,
                    wish.spacing,
                    wish.horizon,
                    None if calendar is None else msgspec.json.encode(calendar).decode(),
                    None if calendar is None else calendar.cut_off_policy,
                    *_columns(periods),
                    WHO,
                    self.now,
                    wish.is_strict,
                )
        except InvalidInput:
            return None
        except asyncpg.PostgresError as refused:
            if getattr(refused, "sqlstate", None) != "PS400":
                raise
            return None
        return (await read_config(self.db, name)).effective_at

    # ---------------------------------------------------------------------- assign and cancel

    async def assign_one(self, name: str, event: str, offset: timedelta) -> None:
        await self.assign(name, [(event, self.now + offset)])

    async def assign_batch(self, name: str, wishes: list[tuple[str, timedelta]]) -> None:
        """Request for several events: some have a slot already, some occur twice."""
        await self.assign(name, [(event, self.now + offset) for event, offset in wishes])

    async def assign_burst(self, name: str, offset: timedelta, count: int) -> None:
        """Request slots for many new events at one instant."""
        self.bursts += 1
        wishes = [(f"burst-{self.bursts}-{number}", self.now + offset) for number in range(count)]
        await self.assign(name, wishes)

    async def assign_again(self, name: str, number: int, shift: int) -> None:
        """Repeat an event: it gets its slot, or a conflict for another time of a strict pool."""
        if not self.ledger.slots:
            return
        slot = _pick(list(self.ledger.slots.values()), number)
        await self.assign(name, [(slot.event_id, slot.requested_at + shift * MICROSECOND)])

    async def assign(self, name: str, wishes: list[tuple[str, datetime]]) -> None:
        """Request slots from both, and compare the results one by one."""
        requests = [SlotRequest(event, at) for event, at in wishes]

        expected = self.pools[name].assign_batch(wishes, now=self.now)
        assigned = await assign_many(self.db, name, requests, now=self.now)

        for want, got in zip(expected, assigned, strict=True):
            assert got.outcome == want.outcome
            assert (got.slot is None) == (want.window_at is None)
            if got.slot is not None:
                stored = self.ledger.slots[got.slot.event_id]
                assert (got.slot.pool, got.slot.requested_at) == (stored.pool, stored.requested_at)
                assert (got.slot.window_at, got.slot.position) == (want.window_at, want.position)
                assert _is_allowed(got.slot.scheduled_at, want)

    async def cancel_one(self, number: int, is_repeated: bool) -> None:
        """Cancel an event, which may be unknown, once or twice."""
        event = _pick([*sorted(self.ledger.slots), "nobody"], number)
        await self.cancel(event)
        if is_repeated:
            await self.cancel(event)

    async def cancel(self, event: str) -> None:
        """Cancel in both; any pool of the oracle can cancel any event."""
        expected = self.pools["left"].cancel(event)
        is_unknown = False
        try:
            await cancel(self.db, event, who=WHO, now=self.now)
        except UnknownSlot:
            is_unknown = True

        assert is_unknown == (expected == "unknown")

    # --------------------------------------------------------------------- forecast and reflow

    async def look_ahead(self, name: str, count: int, offset: timedelta) -> None:
        from_at = self.now + offset
        expected = self.pools[name].forecast(count, from_at, now=self.now)

        seen = await forecast(self.db, name, count=count, from_at=from_at, now=self.now)

        assert (seen.first_at, seen.last_at) == (expected.first_at, expected.last_at)
        assert seen.windows == expected.windows

    async def reflow(self, name: str, offset: timedelta, is_dry_run: bool) -> None:
        freeze_until = self.now + offset
        before = {slot.event_id: slot.place for slot in self.pools[name].slots}
        expected = self.pools[name].reflow(freeze_until, now=self.now, is_dry_run=is_dry_run)

        done = await reflow(
            self.db,
            name,
            freeze_until=freeze_until,
            who=WHO,
            is_dry_run=is_dry_run,
            now=self.now,
        )

        assert done.frozen_until == expected.frozen_until
        assert (done.considered, done.moved) == (expected.considered, len(expected.moves))
        frozen_until = to_micros(expected.frozen_until)
        later = {event: place for event, place in before.items() if place.at >= frozen_until}
        after = later | {move.event_id: move.after for move in expected.moves}
        if not any(place.bounds for place in [*later.values(), *after.values()]):
            assert (done.last_before, done.last_after) == (_last(later), _last(after))
        assert (done.reflow_id is None) == (is_dry_run or not expected.moves)
        if done.reflow_id is not None:
            listing = list_moves(self.db, after=0, reflow_id=done.reflow_id, limit=1_000)
            moves = {move.event_id: move.moved_to for move in await listing}
            assert set(moves) == {move.event_id for move in expected.moves}
            assert all(_is_allowed(moves[move.event_id], move.after) for move in expected.moves)

    async def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------------------------ invariants

    async def check_that_slots_are_equal(self) -> None:
        """And every slot keeps its instant unless a reflow moved it."""
        rows = await self.db.fetch(SLOTS, POOLS)

        assert {row["event_id"] for row in rows} == set(self.ledger.slots)
        for row in rows:
            slot = self.ledger.slots[row["event_id"]]
            found = (row["pool"], row["requested_at"], row["created_at"])
            assert found == (slot.pool, slot.requested_at, slot.created_at)
            assert (row["window_at"], row["position"]) == (
                slot.place.window_at,
                slot.place.position,
            )
            assert _is_allowed(row["scheduled_at"], slot.place)
            place, scheduled_at = self.known.get(slot.event_id, (None, None))
            assert place is not slot.place or scheduled_at == row["scheduled_at"]
        self.known = {
            row["event_id"]: (self.ledger.slots[row["event_id"]].place, row["scheduled_at"])
            for row in rows
        }

    def check_that_no_instant_is_booked_twice(self) -> None:
        places = [(slot.pool, slot.place.at) for slot in self.ledger.slots.values()]
        assert len(set(places)) == len(places)

    async def check_that_runs_equal_a_recount(self) -> None:
        """Runs are maintained incrementally; a recount from the slots must give the same."""
        kept = await self.db.fetch(RUNS, POOLS)
        await self.db.execute(FORGET_RUNS, POOLS)
        await self.db.execute(COUNT_RUNS, POOLS)
        counted = await self.db.fetch(RUNS, POOLS)

        assert [tuple(row) for row in kept] == [tuple(row) for row in counted]


def _is_allowed(scheduled_at: datetime, place: Place | Assignment) -> bool:
    """Say whether an instant is the expected one, or in the interval to draw from."""
    if place.bounds is None:
        return scheduled_at == place.scheduled_at
    return place.bounds[0] <= scheduled_at < place.bounds[1]


def _last(places: dict[str, Place]) -> datetime | None:
    return max(
        (place.scheduled_at for place in places.values() if place.scheduled_at), default=None
    )


def _pick(from_: list[T], number: int) -> T:
    return from_[number % len(from_)]
