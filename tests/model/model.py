"""The kernel as plain Python: where every item must be after any sequence of calls. No SQL.

Reads as the specification does. Time is given, ids and tokens are taken from the database, and the
only thing known of concurrency is a producer that has not committed yet.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

State = Literal["ready", "parked", "leased", "held", "done", "dead", "cancelled"]

WAITING = ("ready", "parked")  # What nobody holds: it can be cancelled, moved or expire.
HEAD = ("ready", "leased", "held")  # At most one item of a key is in one of these.

BACKOFF_BASE = timedelta(seconds=1)
BACKOFF_MULTIPLIER = 2
BACKOFF_CAP = timedelta(seconds=60)

Line = tuple[str, str]  # A lane and an order key.


class Refused(Exception):
    """The call must fail with the kernel's error of this name, and change nothing."""


@dataclass(slots=True, kw_only=True)
class Lane:
    name: str
    is_ordered: bool
    on_dead_head: str
    max_attempts: int
    lease: timedelta
    on_lost: str = "retry"
    is_owned: bool = False
    enabled: bool = True


@dataclass(slots=True, kw_only=True)
class Item:
    id: int
    lane: str
    payload: int
    key: str | None
    order_key: str | None
    due_at: datetime
    not_after: datetime | None
    position: tuple[int, int]
    state: State = "ready"
    reason: str | None = None
    attempt: int = 0
    forgiven: int = 0
    died_at: datetime | None = None
    history: list[tuple[int, str, int]] = field(default_factory=list)  # (attempt, outcome, token)


@dataclass(slots=True, kw_only=True)
class Lease:
    lane: str
    expires_at: datetime
    ids: list[int]
    started: set[int] | None  # None: the lease has no start marks.


@dataclass(slots=True, kw_only=True)
class Replay:
    lane: str
    last_id: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended; `after` is for retry (None: the lane's backoff) and snooze."""

    outcome: Literal["done", "retry", "snooze", "hold", "dead", "returned"]
    after: timedelta | None = None


@dataclass(slots=True)
class Model:
    lanes: dict[str, Lane] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    replays: list[Replay] = field(default_factory=list)
    late: set[tuple[int, int]] = field(default_factory=set)  # (item, token)
    deadlines: set[int] = field(default_factory=set)
    blocked: dict[Line, int] = field(default_factory=dict)  # By which dead item.
    vacated: set[Line] = field(default_factory=set)  # A head ended while a producer was parking.
    parking: Line | None = None  # Where the uncommitted producer's item will stand.
    done: dict[Line, list[int]] = field(default_factory=dict)  # In the order in which they ended.
    last_id: int = 0
    _lasts: int = 0

    # ----------------------------------------------------------------------------- enqueue

    def known(self, lane: str, key: str | None, payload: int) -> int | None:
        """Return the item that a key stands for; raises if it stands for another payload."""
        for item in self.items.values():
            if key is not None and (item.lane, item.key) == (lane, key):
                if item.payload != payload:
                    raise Refused("KeyConflict")
                return item.id
        return None

    def accept(self, item: Item) -> None:
        """Take a new item: to the end of the line of its key, or straight into ready."""
        self.note(item.id)
        self.items[item.id] = item
        if item.not_after is not None:
            self.deadlines.add(item.id)
        self._line_up([item])

    def note(self, item_id: int) -> None:
        """Remember the last id that was given out, also to a producer that may roll back."""
        self.last_id = max(self.last_id, item_id)

    # -------------------------------------------------------------------- claim and settle

    def due(self, lane: str, *, limit: int, now: datetime) -> list[int]:
        """Return what a claim must take, in this order."""
        if not self.lanes[lane].enabled:
            return []
        ready = [
            item
            for item in self.items.values()
            if item.lane == lane and item.state == "ready" and item.due_at <= now
        ]
        ready.sort(key=lambda item: (item.due_at, item.id))
        return [item.id for item in ready[:limit]]

    def claim(self, token: int, lane: str, ids: list[int], *, now: datetime) -> None:
        expires_at = now + self.lanes[lane].lease
        started = set[int]() if self.lanes[lane].on_lost == "hold" else None
        self.leases[token] = Lease(lane=lane, expires_at=expires_at, ids=list(ids), started=started)
        for item_id in ids:
            self.items[item_id].state = "leased"

    def start(self, token: int, ids: list[int], *, now: datetime) -> bool:
        """Mark items as about to start; return whether they may."""
        lease = self.leases.get(token)
        if lease is None or lease.expires_at <= now:
            return False
        if lease.started is not None:
            lease.started |= set(ids)
        return True

    def settle(self, token: int, ended: dict[int, Ending], *, closes: bool, now: datetime) -> bool:
        """Write endings; without the lease they are late, and what is settled stays settled."""
        lease = self.leases.get(token)
        if lease is None:
            self._keep_late(token, ended)
            return False
        left = [item_id for item_id in lease.ids if item_id not in ended]
        written = [self.items[item_id] for item_id in ended if item_id in lease.ids]
        assert bool(left) != closes, "a lease is closed exactly when nothing of it is left"
        lease.ids = left
        if closes:
            del self.leases[token]
        for item in written:
            self._end(item, ended[item.id], token=token, now=now)
        self._move_up([item for item in written if item.state == "done"])
        self._bury([item for item in written if item.state == "dead"])
        return True

    def _keep_late(self, token: int, ended: dict[int, Ending]) -> None:
        for item_id, ending in ended.items():
            is_recorded = any(
                by == token and outcome != "lost" for _, outcome, by in self.items[item_id].history
            )
            if ending.outcome != "returned" and not is_recorded:
                self.late.add((item_id, token))

    def _end(self, item: Item, ending: Ending, *, token: int, now: datetime) -> None:
        match ending.outcome:
            case "returned":
                item.state = "ready"
            case "done":
                self._record(item, "done", token)
                item.state = "done"
                if item.order_key is not None:
                    self.done.setdefault(_line(item), []).append(item.id)
            case "hold":
                self._record(item, "hold", token)
                item.state, item.reason = "held", "hold"
            case "dead":
                self._die(item, "dead", token=token, now=now)
            case "retry" | "snooze":
                self._repeat(item, ending, token=token, now=now)

    def _repeat(self, item: Item, ending: Ending, *, token: int, now: datetime) -> None:
        """Put it back for later: unless its attempts are used up, or its deadline comes first."""
        spent = item.attempt + 1 - item.forgiven
        if ending.outcome == "retry" and spent >= self.lanes[item.lane].max_attempts:
            self._die(item, "retry", token=token, now=now)
            return
        wait = ending.after
        if wait is None:
            wait = min(BACKOFF_BASE * BACKOFF_MULTIPLIER ** (spent - 1), BACKOFF_CAP)
        if item.not_after is not None and now + wait > item.not_after:
            self._die(item, "expired", token=token, now=now)
            return
        self._record(item, ending.outcome, token)
        item.forgiven += ending.outcome == "snooze"
        item.state, item.due_at = "ready", now + wait

    def _die(self, item: Item, reason: str, *, token: int, now: datetime) -> None:
        self._record(item, "dead", token)
        item.state, item.reason, item.died_at = "dead", reason, now

    def _record(self, item: Item, outcome: str, token: int) -> None:
        item.attempt += 1
        item.history.append((item.attempt, outcome, token))

    # ------------------------------------------------------------------------------- sweep

    def extend(self, tokens: list[int], *, now: datetime) -> set[int]:
        """Renew leases; return those that are still valid. An expired one is not revived."""
        known = {token for token in tokens if token in self.leases}
        kept = {token for token in known if self.leases[token].expires_at > now}
        for token in kept:
            lease = self.leases[token]
            lease.expires_at = now + self.lanes[lease.lane].lease
        return kept

    def rescue(self, *, now: datetime) -> int:
        """Give back what expired leases held, each with a lost attempt, or end what is over.

        What never started is given back as it was; what a lane holds is held.
        """
        expired = {token: each for token, each in self.leases.items() if each.expires_at <= now}
        lost = [
            (token, each.started, self.items[item_id])
            for token, each in expired.items()
            for item_id in each.ids
        ]
        for token in expired:
            del self.leases[token]
        for token, started, item in lost:
            is_started = started is None or item.id in started
            holds = self.lanes[item.lane].on_lost == "hold" or started is not None
            if is_started:
                self._record(item, "lost", token)
            if is_started and holds:
                item.state, item.reason = "held", "lost"
            elif item.not_after is not None and item.not_after <= now:
                item.state, item.reason, item.died_at = "dead", "expired", now
            elif is_started and self._is_spent(item):
                item.state, item.reason, item.died_at = "dead", "lost", now
            else:
                item.state, item.due_at = "ready", now
        self._bury([item for *_, item in lost if item.state == "dead"])
        return len(lost)

    def _is_spent(self, item: Item) -> bool:
        return item.attempt - item.forgiven >= self.lanes[item.lane].max_attempts

    def expire(self, *, now: datetime) -> int:
        """End what waits past its deadline. A deadline is looked at once."""
        passed = [self.items[item_id] for item_id in self.deadlines]
        passed = [item for item in passed if item.not_after is not None and item.not_after <= now]
        self.deadlines -= {item.id for item in passed}
        heads = [item for item in passed if item.state == "ready"]
        expired = [item for item in passed if item.state in WAITING]
        for item in expired:
            item.state, item.reason, item.died_at = "dead", "expired", now
        self._bury(heads)
        return len(expired)

    def promote_vacated(self) -> None:
        """Look again at lines whose head ended while a producer was parking."""
        vacated, self.vacated = self.vacated, set()
        for line in vacated:
            self._promote(line)

    # ----------------------------------------------------------------------------- operate

    def cancel(self, item_id: int) -> None:
        item = self.items[item_id]
        if item.state in ("leased", "done"):
            raise Refused("StateConflict")
        was, item.state, item.reason = item.state, "cancelled", None
        line = self._ordered_line(item)
        if line is None:
            return
        is_blocker = was == "dead" and self.blocked.get(line) == item_id
        if is_blocker:
            del self.blocked[line]
        if is_blocker or was in ("ready", "held"):
            self._promote(line)

    def reschedule(self, item_id: int, due_at: datetime) -> None:
        item = self.items[item_id]
        if item.state not in WAITING:
            raise Refused("StateConflict")
        if item.not_after is not None and due_at > item.not_after:
            raise Refused("InvalidInput")
        item.due_at = due_at

    def retry(self, item_id: int, *, now: datetime) -> None:
        if not self._revive([self.items[item_id]], now=now):
            raise Refused("StateConflict")

    def hold(self, item_id: int) -> None:
        item = self.items[item_id]
        if item.state != "ready":
            raise Refused("StateConflict")
        item.state, item.reason = "held", "by hand"

    def release(self, item_id: int, *, now: datetime) -> None:
        item = self._held(item_id)
        if item.not_after is not None and item.not_after <= now:
            raise Refused("StateConflict")
        item.state, item.reason = "ready", None
        # An item that was held before it was due is not tried earlier.
        item.due_at, item.forgiven = max(item.due_at, now), item.attempt

    def resolve(self, item_id: int, outcome: str, *, token: int, now: datetime) -> None:
        item = self._held(item_id)
        if outcome == "dead":
            item.state, item.reason, item.died_at = "dead", "by hand", now
            self._bury([item])
            return
        self._record(item, "done", token)
        item.state, item.reason = "done", None
        if item.order_key is not None:
            self.done.setdefault(_line(item), []).append(item.id)
        self._move_up([item])

    def skip(self, item_id: int, *, now: datetime) -> None:
        item = self.items[item_id]
        line = self._ordered_line(item)
        is_blocker = line is not None and self.blocked.get(line) == item_id
        if line is None or not (is_blocker or item.state in ("ready", "held")):
            raise Refused("StateConflict")
        if is_blocker:
            del self.blocked[line]
        else:
            item.state, item.reason, item.died_at = "dead", "skipped: by hand", now
        self._promote(line)

    def _held(self, item_id: int) -> Item:
        item = self.items[item_id]
        if item.state != "held":
            raise Refused("StateConflict")
        return item

    def replayable(self, lane: str, *, now: datetime) -> list[Item]:
        return [item for item in self.items.values() if item.lane == lane and _can_rise(item, now)]

    def start_replay(self, lane: str, *, now: datetime) -> int:
        """Note which items are dead now; return how many that are."""
        dead = self.replayable(lane, now=now)
        last_id = max((item.id for item in dead), default=0)
        self.replays.append(Replay(lane=lane, last_id=last_id, created_at=now))
        return len(dead)

    def continue_replays(self, *, now: datetime) -> int:
        """Do the oldest job at once; the kernel's steps are larger than anything here."""
        if not self.replays:
            return 0
        job = self.replays.pop(0)
        dead = [item for item in self.items.values() if item.lane == job.lane]
        dead = [item for item in dead if item.died_at and item.died_at <= job.created_at]
        return self._revive([item for item in dead if item.id <= job.last_id], now=now)

    def _revive(self, items: list[Item], *, now: datetime) -> int:
        """Give dead items new attempts: a blocker leads its line again, others stand in it."""
        risen = sorted((each for each in items if _can_rise(each, now)), key=lambda each: each.id)
        others: list[Item] = []
        for item in risen:
            item.state, item.reason = "ready", None
            item.due_at, item.forgiven = max(item.due_at, now), item.attempt
            line = self._ordered_line(item)
            if line is not None and self.blocked.get(line) == item.id:
                del self.blocked[line]
            else:
                item.state = "parked"  # Not yet in the line; it must not count as its head.
                others.append(item)
        for item in others:
            is_last = self.lanes[item.lane].on_dead_head == "skip"
            item.position = self._last_position() if is_last else (item.id, 0)
        self._line_up(others)
        return len(risen)

    def _last_position(self) -> tuple[int, int]:
        """Return a place behind everything that was accepted, before everything that will be."""
        self._lasts += 1
        return (self.last_id, self._lasts)

    # ------------------------------------------------------------------------------- lines

    def _line_up(self, items: list[Item]) -> None:
        for item in items:
            item.state = "parked"
        for item in sorted(items, key=lambda item: item.position):
            line = self._ordered_line(item)
            if line is None or not self.is_taken(line):
                item.state = "ready"

    def is_taken(self, line: Line) -> bool:
        return (
            line in self.blocked
            or line in self.vacated
            or any(item.state in HEAD for item in self.items.values() if _line(item) == line)
        )

    def taken_lines(self) -> dict[Line, int | None]:
        """Return the lines in which a new item has to wait, and the dead item that blocks each."""
        lines = {self._ordered_line(item) for item in self.items.values()}
        return {line: self.blocked.get(line) for line in lines if line and self.is_taken(line)}

    def _ordered_line(self, item: Item) -> Line | None:
        is_ordered = self.lanes[item.lane].is_ordered and item.order_key is not None
        return _line(item) if is_ordered else None

    def _move_up(self, ended: list[Item]) -> None:
        for item in ended:
            line = self._ordered_line(item)
            if line is not None:
                self._promote(line)

    def _bury(self, dead: list[Item]) -> None:
        """Heads have died: their lines stop, or go on without them."""
        for item in dead:
            line = self._ordered_line(item)
            if line is not None and self.lanes[item.lane].on_dead_head == "block":
                self.blocked[line] = item.id
            elif line is not None:
                self._promote(line)

    def _promote(self, line: Line) -> None:
        parked = [item for item in self.items.values() if _line(item) == line]
        parked = [item for item in parked if item.state == "parked"]
        if parked:
            min(parked, key=lambda item: item.position).state = "ready"
        elif line == self.parking:
            self.vacated.add(line)


def _line(item: Item) -> Line:
    return (item.lane, item.order_key or "")


def _can_rise(item: Item, now: datetime) -> bool:
    return item.state == "dead" and (item.not_after is None or item.not_after > now)
