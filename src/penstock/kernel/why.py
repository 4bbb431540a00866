"""Why an item has not run, or a lane runs nothing: the reasons, from a few rows. Never writes.

The statements are not one snapshot: the answer is for people, and the item may move meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from penstock.kernel.claim import SLOTS_AHEAD
from penstock.kernel.errors import UnknownItem
from penstock.kernel.heartbeat import ALIVE_FOR
from penstock.kernel.inspect import HEADS_MAX, ItemView, read_item
from penstock.kernel.item import ItemId
from penstock.kernel.lane import Lane, read_lane
from penstock.kernel.limit_key import limits_of, refusal_reason
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_PLACE = statement(__package__, "read_place.sql")
READ_LOAD = statement(__package__, "read_load.sql")
FIND_HEAD = statement(__package__, "find_head.sql")
COUNT_AHEAD = statement(__package__, "count_ahead.sql")
COUNT_BLOCKED = statement(__package__, "count_blocked.sql")

AHEAD_MAX = 10_000  # Counting stops here; a longer queue needs no exact number.
NEIGHBOURS_MAX = 20  # Items of a key that are looked up on each side of its first follower.

ReasonCode = Literal[
    "paused", "no_worker", "not_due", "waits_for_slot", "limit_key", "behind_head",
    "dispatch_interval", "rate", "concurrency", "concurrency_total", "items_ahead", "next_claim",
    "leased", "lease_expired", "held", "dead", "done", "cancelled", "deadline", "in_flight",
    "nothing_due", "empty",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason: a code for programs, a sentence for people, and the values in the sentence."""

    code: ReasonCode
    sentence: str
    data: dict[str, Any] = field(default_factory=dict)


async def why_item(db: Queries, item_id: ItemId, *, now: datetime | None = None) -> list[Reason]:
    """Return why an item has not run, the strongest reason first; raises UnknownItem.

    An item that waits behind the head of its order key has the reasons of the head as well.
    """
    item = await read_item(db, item_id)
    if item is None:
        raise UnknownItem(item_id)
    return await _reasons(db, item, now=now)


async def why_lane(db: Queries, name: str, *, now: datetime | None = None) -> list[Reason]:
    """Return what keeps a lane from running items, the strongest reason first."""
    lane = await read_lane(db, name)
    load = await _read_load(db, lane, now=now)
    reasons = list(_limits(lane, load))
    if load["leased"]:
        sentence = f"workers hold {load['leased']} items of lane {name}"
        reasons.append(Reason(code="in_flight", sentence=sentence, data={"leased": load["leased"]}))
    heads = await db.fetch(COUNT_BLOCKED, lane.lane_id, HEADS_MAX)
    blocked = [_blocked(lane, row) for row in heads]
    reasons += blocked
    next_due_at = load["next_due_at"]
    if next_due_at is None and not blocked:
        reasons.append(Reason(code="empty", sentence=f"lane {name} has no item that can run"))
    elif next_due_at is not None and next_due_at > load["now"]:
        sentence = f"the next item of lane {name} is due at {_at(next_due_at)}"
        data = {"due_at": next_due_at}
        reasons.append(Reason(code="nothing_due", sentence=sentence, data=data))
    return reasons or [_next_claim(f"the next due item of lane {name}")]


def _blocked(lane: Lane, row: Row) -> Reason:
    """Return that followers wait behind heads that a person has to decide about."""
    state, order_keys, head_id = row["head_state"], row["order_keys"], row["head_id"]
    count = f"{order_keys} or more" if order_keys == HEADS_MAX else str(order_keys)
    sentence = (
        f"items of lane {lane.name} with {count} order keys wait behind {state} heads, "
        f"such as item {head_id}"
    )
    data = {"head_state": state, "order_keys": order_keys, "head_id": head_id}
    return Reason(code="behind_head", sentence=sentence, data=data)


async def _reasons(db: Queries, item: ItemView, *, now: datetime | None) -> list[Reason]:
    place = await db.fetchrow(READ_PLACE, item.id, now)
    assert place is not None, "the item itself is a row"
    match item.state:
        case "ready" | "scheduled":
            lane = await read_lane(db, item.lane)
            return [*await _waiting(db, item, lane=lane, place=place), *_deadline(item)]
        case "parked":
            head = await _find_head(db, item)
            behind = [await _behind(db, item, head), *_deadline(item)]
            return behind if head is None else [*behind, *await _reasons(db, head, now=now)]
        case "leased":
            return [_leased(item, place, await read_lane(db, item.lane))]
        case "held":
            return [_held(item, place, await read_lane(db, item.lane))]
        case "dead":
            return [_dead(item, place, await read_lane(db, item.lane))]
        case _:
            return [_ended(item, place)]


# ------------------------------------------------------------------------------------- waiting


async def _waiting(db: Queries, item: ItemView, *, lane: Lane, place: Row) -> list[Reason]:
    """Return the reasons of an item in `ready`: not due, or what limits its lane."""
    load = await _read_load(db, lane, now=place["now"])
    limits = list(_limits(lane, load))
    early = lane.pre_start_buffer if lane.rate is None else timedelta(0)
    if item.due_at - early > place["now"]:
        return [_not_due(item, lane, place), *limits]
    ahead: int = await db.fetchval(COUNT_AHEAD, lane.lane_id, item.due_at, item.id, AHEAD_MAX)
    if ahead:
        limits.append(_ahead(item, lane, load, ahead=ahead))
    return limits or [_next_claim(f"item {item.id}")]


def _not_due(item: ItemView, lane: Lane, place: Row) -> Reason:
    data: dict[str, Any] = {"item_id": item.id, "due_at": item.due_at}
    sentence = f"item {item.id} is not due before {_at(item.due_at)}"
    if place["outcome"] is not None:
        attempt, outcome, reason = place["attempt"], place["outcome"], place["last_reason"]
        if outcome == "snooze" and (limited := _limited(item, lane, reason)) is not None:
            return limited
        sentence += f": attempt {attempt} ended with {outcome}" + (f", {reason}" if reason else "")
        data |= {"attempt": attempt, "outcome": outcome, "reason": reason}
    elif lane.slot_pool is not None:
        sentence += f", its slot in pool {lane.slot_pool}"
        data |= {"slot_pool": lane.slot_pool}
        return Reason(code="waits_for_slot", sentence=sentence, data=data)
    return Reason(code="not_due", sentence=sentence, data=data)


def _limited(item: ItemView, lane: Lane, reason: str) -> Reason | None:
    """Return that an item waits for its turn at a limit key, if its last attempt ended so."""
    for key in limits_of(item.limit_keys or {}, lane.key_limits):
        for limit, allowed in (("rate", key.limit.rate), ("concurrency", key.limit.concurrency)):
            if reason != refusal_reason(key.name, key.value, limit):
                continue
            unit = "starts a second" if limit == "rate" else "handlers at once"
            sentence = (
                f"item {item.id} waits for its limit key {key.name}={key.value} until "
                f"{_at(item.due_at)}: lane {lane.name} allows it {allowed or 0:g} {unit}"
            )
            data: dict[str, Any] = {
                "item_id": item.id, "due_at": item.due_at, "name": key.name, "value": key.value,
                "limit": limit, limit: allowed,
            }  # fmt: skip
            return Reason(code="limit_key", sentence=sentence, data=data)
    return None


def _ahead(item: ItemView, lane: Lane, load: Row, *, ahead: int) -> Reason:
    count = f"{ahead} or more" if ahead == AHEAD_MAX else str(ahead)
    sentence = f"{count} items of lane {lane.name} are claimed before item {item.id}"
    data: dict[str, Any] = {"item_id": item.id, "items_ahead": ahead}
    if lane.rate is None:
        return Reason(code="items_ahead", sentence=sentence, data=data)
    starts_at = load["next_slot_at"] + timedelta(seconds=ahead / lane.rate)
    sentence += f"; at {lane.rate:g} per second it starts at {_at(starts_at)} or later"
    return Reason(code="rate", sentence=sentence, data=data | {"starts_at": starts_at})


async def _find_head(db: Queries, item: ItemView) -> ItemView | None:
    """Return the item that a follower waits for; None if it has ended, or is not found."""
    lane = await read_lane(db, item.lane)
    head_id = await db.fetchval(FIND_HEAD, lane.lane_id, item.order_key, NEIGHBOURS_MAX)
    return None if head_id is None else await read_item(db, head_id)


async def _behind(db: Queries, item: ItemView, head: ItemView | None) -> Reason:
    data: dict[str, Any] = {"item_id": item.id, "order_key": item.order_key}
    if head is None:
        sentence = f"item {item.id} waits for an earlier item with the same order key"
        return Reason(code="behind_head", sentence=sentence, data=data)
    place = await db.fetchrow(READ_PLACE, head.id, None)
    assert place is not None, "the item itself is a row"
    since = place["since"] or head.due_at
    word = "due at" if head.state == "scheduled" else f"{head.state} since"
    sentence = (
        f"item {item.id} waits for item {head.id} with the same order key, "
        f"which is {word} {_at(since)}"
    )
    data |= {"head_id": head.id, "head_state": head.state, "since": since}
    return Reason(code="behind_head", sentence=sentence, data=data)


def _deadline(item: ItemView) -> Iterator[Reason]:
    if item.not_after is not None:
        sentence = f"item {item.id} ends as dead if it is not claimed before {_at(item.not_after)}"
        data = {"item_id": item.id, "not_after": item.not_after}
        yield Reason(code="deadline", sentence=sentence, data=data)


def _next_claim(subject: str) -> Reason:
    return Reason(code="next_claim", sentence=f"nothing holds {subject} back: it is claimed next")


# -------------------------------------------------------------------------------------- limits


async def _read_load(db: Queries, lane: Lane, *, now: datetime | None) -> Row:
    load = await db.fetchrow(READ_LOAD, lane.lane_id, ALIVE_FOR, now)
    assert load is not None, "a lane has a row of pacing"
    return load


def _limits(lane: Lane, load: Row) -> Iterator[Reason]:
    """Yield what keeps every item of the lane from being claimed now."""
    name, now = lane.name, load["now"]
    if not lane.enabled:
        yield Reason(code="paused", sentence=f"lane {name} is paused")
    if not load["workers"]:
        seen_at = load["worker_seen_at"]
        last = "" if seen_at is None else f"; the last one was seen at {_at(seen_at)}"
        sentence = f"no worker runs lane {name}{last}"
        yield Reason(code="no_worker", sentence=sentence, data={"seen_at": seen_at})
    if load["next_cycle_at"] > now:
        next_at = load["next_cycle_at"]
        sentence = f"the dispatch interval of lane {name} allows its next claim at {_at(next_at)}"
        yield Reason(code="dispatch_interval", sentence=sentence, data={"next_at": next_at})
    # The claim hands out rate slots this much ahead.
    if lane.rate is not None and load["next_slot_at"] > now + SLOTS_AHEAD:
        next_at = load["next_slot_at"]
        sentence = f"the rate of lane {name} allows the next start at {_at(next_at)}"
        yield Reason(code="rate", sentence=sentence, data={"next_at": next_at, "rate": lane.rate})
    workers, leased = load["workers"], load["leased"]
    if workers and leased >= workers * lane.concurrency:
        sentence = (
            f"the workers of lane {name} hold {leased} items, and its concurrency allows "
            f"{lane.concurrency} for each of {workers}"
        )
        data = {"leased": leased, "workers": workers, "concurrency": lane.concurrency}
        yield Reason(code="concurrency", sentence=sentence, data=data)
    if lane.concurrency_total is not None and leased >= lane.concurrency_total:
        yield _no_place(lane, load)


def _no_place(lane: Lane, load: Row) -> Reason:
    """Return that workers hold as many items as they may together, and which workers these are."""
    leased_by: dict[str, int] = msgspec.json.decode(load["leased_by"])
    holders = ", ".join(f"{worker} {count}" for worker, count in sorted(leased_by.items()))
    sentence = (
        f"lane {lane.name} allows {lane.concurrency_total} items at once over all workers, "
        f"and its workers hold {load['leased']}: {holders}"
    )
    data = {
        "leased": load["leased"], "concurrency_total": lane.concurrency_total,
        "leased_by": leased_by,
    }  # fmt: skip
    return Reason(code="concurrency_total", sentence=sentence, data=data)


# ----------------------------------------------------------------------------- other states


def _leased(item: ItemView, place: Row, lane: Lane) -> Reason:
    worker, expires_at = place["worker"], place["expires_at"]
    if worker is None:
        return _next_claim(f"item {item.id}")  # It was settled between two statements.
    data: dict[str, Any] = {
        "item_id": item.id, "worker": worker, "token": place["token"],
        "claimed_at": place["since"], "expires_at": expires_at,
        "has_started": place["has_started"] if place["marks_starts"] else None,
    }  # fmt: skip
    if expires_at <= place["now"]:
        may_have_started = place["has_started"] or not place["marks_starts"]
        is_held = may_have_started and (lane.on_lost == "hold" or place["marks_starts"])
        step = "holds the item, which may have been executed" if is_held else "returns the item"
        sentence = (
            f"the lease of worker {worker} on item {item.id} expired at {_at(expires_at)}; "
            f"a sweeper {step}"
        )
        return Reason(code="lease_expired", sentence=sentence, data=data)
    sentence = f"worker {worker} holds item {item.id} until {_at(expires_at)}"
    if place["marks_starts"]:
        sentence += ", and has started it" if place["has_started"] else ", and has not started it"
    return Reason(code="leased", sentence=sentence, data=data)


def _held(item: ItemView, place: Row, lane: Lane) -> Reason:
    verbs = ["release", "resolve", "cancel"]
    if lane.ordering == "per_key" and item.order_key is not None:
        verbs.append("skip")
    return _decided(item, place, state="held", verbs=verbs)


def _dead(item: ItemView, place: Row, lane: Lane) -> Reason:
    verbs = ["retry", "cancel"]
    if lane.on_dead_head == "block" and item.order_key is not None:
        verbs.append("skip")
    return _decided(item, place, state="dead", verbs=verbs)


def _decided(
    item: ItemView, place: Row, *, state: Literal["held", "dead"], verbs: list[str]
) -> Reason:
    sentence = (
        f"item {item.id} is {state} since {_at(place['since'])}: {item.reason}; "
        f"it can be decided with {', '.join(verbs)}"
    )
    data = {"item_id": item.id, "since": place["since"], "reason": item.reason, "verbs": verbs}
    return Reason(code=state, sentence=sentence, data=data)


def _ended(item: ItemView, place: Row) -> Reason:
    code: ReasonCode = "done" if item.state == "done" else "cancelled"
    since = place["since"] or place["settled_at"]
    sentence = f"item {item.id} is {code} since {_at(since)}"
    return Reason(code=code, sentence=sentence, data={"item_id": item.id, "since": since})


def _at(instant: datetime | None) -> str:
    return "an unknown instant" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S} UTC"
