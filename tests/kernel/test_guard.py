"""A domain's lane is its own: others are refused what it guards, with what to use instead."""

import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import asyncpg
import pytest

from penstock import Dead, Hold
from penstock.base.errors import InvalidInput
from penstock.kernel.enqueue import enqueue, enqueue_many
from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.inspect import balance, list_audit
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane, read_lane, set_lane
from penstock.kernel.operate import cancel, hold, release, reschedule, resolve, retry, skip
from penstock.kernel.replay import count_dead, list_replays, start_replay
from penstock.kernel.select import Selection, decide_page
from penstock.postgres.pool import Connection
from tests.kernel.scene import HOUR, NOON, attempt_once, put, state_of

OWNER = "rails"
VERBS = ("retry", "cancel", "reschedule", "replay", "resolve", "hold", "release", "skip")
GUARDS = {verb: f"use rails {verb}" for verb in ("enqueue", *VERBS)}

Verb = Callable[..., Awaitable[Any]]
_numbers = itertools.count(1)


@pytest.fixture
def db(shared: Connection) -> Connection:
    """One database for all of them: each keeps to a lane of its own."""
    return shared


@pytest.fixture
async def lane(db: Connection) -> Lane:
    return await owned_lane(db, GUARDS)


async def owned_lane(db: Connection, guards: Mapping[str, str]) -> Lane:
    """Return a new lane of a domain, in which the order of keys is kept."""
    name = f"rail-{next(_numbers)}"
    policy: dict[str, Any] = {"ordering": "per_key", "backoff_jitter": 0}
    return await create_lane(db, name, who="test", owner=OWNER, guards=guards, **policy)


async def put_own(db: Connection, lane: Lane) -> ItemId:
    """Enqueue an item as the domain does."""
    item = NewItem(payload=1, order_key="k")
    return (await enqueue(db, lane.name, item, at=NOON, owner=OWNER)).id


# ------------------------------------------------------------------------------------- enqueue


async def by_sql(db: Connection, lane: str, owner: str | None) -> None:
    await db.execute("SELECT penstock.enqueue($1, '1', owner => $2)", lane, owner)


async def by_sql_many(db: Connection, lane: str, owner: str | None) -> None:
    arrays = "ARRAY['1']::jsonb[], NULL, NULL, NULL, NULL"
    await db.execute(f"SELECT penstock.enqueue_many($1, {arrays}, owner => $2)", lane, owner)


async def by_python(db: Connection, lane: str, owner: str | None) -> None:
    await enqueue(db, lane, NewItem(payload=1), owner=owner)


async def by_copy(db: Connection, lane: str, owner: str | None) -> None:
    await enqueue_many(db, lane, [NewItem(payload=1)], owner=owner)


WAYS = pytest.mark.parametrize("way", [by_sql, by_sql_many, by_python, by_copy])
ORDERINGS = pytest.mark.parametrize("ordering", ["none", "per_key"])


@WAYS
@ORDERINGS
async def test_only_the_owner_enqueues(db: Connection, *, way: Verb, ordering: str) -> None:
    """An item that the domain does not know of may be one that it would have refused."""
    lane = await owned_lane(db, GUARDS)
    await set_lane(db, lane.name, who="test", owner=OWNER, ordering=ordering)
    before = await balance(db)

    for stranger in (None, "letters"):
        with pytest.raises((LaneIsOwned, asyncpg.PostgresError), match="use rails enqueue"):
            await way(db, lane.name, stranger)
    assert await balance(db) == before
    await way(db, lane.name, OWNER)

    assert (await balance(db)).accepted == before.accepted + 1


@WAYS
async def test_a_lane_without_a_guard_takes_items_of_anyone(db: Connection, *, way: Verb) -> None:
    mine = await create_lane(db, f"mail-{next(_numbers)}", who="test")
    theirs = await owned_lane(db, {})

    await way(db, mine.name, None)
    await way(db, mine.name, OWNER)
    await way(db, theirs.name, None)


async def test_a_refusal_in_sql_has_a_code_and_the_pointer(db: Connection, lane: Lane) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await by_sql(db, lane.name, None)

    error: Any = refused.value
    assert error.sqlstate == "PS403"
    assert error.message == (
        f"lane '{lane.name}' belongs to the domain 'rails', "
        "which refuses enqueue: use rails enqueue"
    )
    assert json.loads(error.detail) == {
        "lane": lane.name, "owner": OWNER, "verb": "enqueue", "pointer": "use rails enqueue",
    }  # fmt: skip


async def test_a_refusal_in_python_says_the_same(db: Connection, lane: Lane) -> None:
    with pytest.raises(asyncpg.PostgresError) as in_sql:
        await by_sql(db, lane.name, None)
    with pytest.raises(LaneIsOwned) as in_python:
        await by_python(db, lane.name, None)

    assert str(in_python.value) == getattr(in_sql.value, "message", "")
    assert (in_python.value.lane, in_python.value.owner) == (lane.name, OWNER)
    assert (in_python.value.verb, in_python.value.pointer) == ("enqueue", "use rails enqueue")


# --------------------------------------------------------------------------------------- verbs


async def waiting(db: Connection, lane: Lane) -> ItemId:
    return await put_own(db, lane)


async def held(db: Connection, lane: Lane) -> ItemId:
    item_id = await put_own(db, lane)
    await attempt_once(db, lane, Hold("no reply"))
    return item_id


async def dead(db: Connection, lane: Lane) -> ItemId:
    item_id = await put_own(db, lane)
    await attempt_once(db, lane, Dead("no"))
    return item_id


CASES: dict[str, tuple[Verb, Verb]] = {
    "retry": (dead, partial(retry, who="ann")),
    "cancel": (waiting, partial(cancel, who="ann")),
    "reschedule": (waiting, partial(reschedule, due_at=NOON + HOUR, who="ann")),
    "resolve": (held, partial(resolve, outcome="done", who="ann", reason="paid")),
    "hold": (waiting, partial(hold, who="ann", reason="wait")),
    "release": (held, partial(release, who="ann", reason="not paid")),
    "skip": (waiting, partial(skip, who="ann", reason="not wanted")),
}


def test_the_cases_are_all_verbs_of_single_items() -> None:
    assert CASES.keys() | {"replay"} == set(VERBS)


@pytest.mark.parametrize("verb", CASES)
async def test_a_guarded_verb_changes_nothing_except_for_the_owner(
    db: Connection, lane: Lane, verb: str
) -> None:
    prepare, change = CASES[verb]
    item_id = await prepare(db, lane)
    before = await state_of(db, item_id)
    audited = await list_audit(db)

    for stranger in (None, "letters"):
        with pytest.raises(LaneIsOwned, match=f"use rails {verb}"):
            await change(db, item_id, owner=stranger)
    assert await state_of(db, item_id) == before
    assert await list_audit(db) == audited
    await change(db, item_id, owner=OWNER)

    assert len(await list_audit(db)) == len(audited) + 1


@pytest.mark.parametrize("verb", CASES)
async def test_a_verb_that_the_domain_does_not_guard_is_for_everyone(
    db: Connection, verb: str
) -> None:
    others = {name: pointer for name, pointer in GUARDS.items() if name != verb}
    lane = await owned_lane(db, others)
    prepare, change = CASES[verb]
    item_id = await prepare(db, lane)

    await change(db, item_id)


async def test_a_guarded_verb_is_refused_for_many_items_too(db: Connection, lane: Lane) -> None:
    item_id = await held(db, lane)
    selection = Selection(lane=lane.name, state="held")

    with pytest.raises(LaneIsOwned, match="use rails release"):
        await decide_page(db, selection, partial(release, who="ann", reason="all"))
    assert await state_of(db, item_id) == "held"

    own = partial(release, who="ann", reason="all", owner=OWNER)
    assert (await decide_page(db, selection, own)).changed == 1


async def test_a_guarded_replay_is_refused(db: Connection, lane: Lane) -> None:
    await dead(db, lane)
    known = await list_replays(db)

    with pytest.raises(LaneIsOwned, match="use rails replay"):
        await start_replay(db, lane.name, who="ann", now=NOON)
    assert await list_replays(db) == known

    assert (await start_replay(db, lane.name, who="ann", owner=OWNER, now=NOON)).counted == 1
    assert await count_dead(db, lane.name, now=NOON) == 1


# ----------------------------------------------------------------------------- owner and guards


async def test_a_guarded_field_changes_only_for_the_owner(db: Connection) -> None:
    lane = await owned_lane(db, {"set:max_attempts": "DISPATCH_MAX_ATTEMPTS sets it"})

    with pytest.raises(LaneIsOwned) as refused:
        await set_lane(db, lane.name, who="ann", rate=5, max_attempts=9)
    assert await read_lane(db, lane.name) == lane
    same = await set_lane(db, lane.name, who="ann", rate=5, max_attempts=lane.max_attempts)
    changed = await set_lane(db, lane.name, who="ann", owner=OWNER, max_attempts=9)

    assert str(refused.value).endswith(
        "which refuses a change of max_attempts: DISPATCH_MAX_ATTEMPTS sets it"
    )
    assert same.rate == 5
    assert changed.max_attempts == 9


async def test_creating_a_lane_again_brings_its_owner_and_guards_up_to_date(
    db: Connection, lane: Lane
) -> None:
    """A new release of the domain may guard more, or less; the policy stays with the operators."""
    guards = {"cancel": "use rails recall"}

    after = await create_lane(db, lane.name, who="app", owner=OWNER, guards=guards, ordering="none")
    (entry, *_) = await list_audit(db, subject=lane.name)
    again = await create_lane(db, lane.name, who="app", owner=OWNER, guards=guards)
    (latest, *_) = await list_audit(db, subject=lane.name)

    assert (after.owner, after.guards, after.ordering) == (OWNER, guards, "per_key")
    assert json.loads(entry.after or "") == {"owner": OWNER, "guards": guards}
    assert json.loads(entry.before or "") == {"owner": OWNER, "guards": GUARDS}
    assert (again, latest) == (after, entry)


async def test_a_lane_of_a_user_becomes_that_of_the_domain_that_declares_it(
    db: Connection,
) -> None:
    lane = await create_lane(db, f"mail-{next(_numbers)}", who="test", rate=5)
    await put(db, lane)

    owned = await create_lane(db, lane.name, who="app", owner=OWNER, guards=GUARDS)

    assert (owned.owner, owned.rate) == (OWNER, 5)
    with pytest.raises(LaneIsOwned):
        await put(db, lane)


async def test_a_lane_of_a_domain_cannot_be_taken_by_another(db: Connection, lane: Lane) -> None:
    with pytest.raises(LaneIsOwned, match="belongs to the domain 'rails'"):
        await create_lane(db, lane.name, who="app", owner="letters")

    assert await read_lane(db, lane.name) == lane


async def test_a_user_who_creates_an_owned_lane_again_does_not_change_it(
    db: Connection, lane: Lane
) -> None:
    assert await create_lane(db, lane.name, who="ann") == lane


async def test_a_reserved_name_is_only_for_a_lane_with_an_owner(db: Connection) -> None:
    """A lane of a user would collide with one that a later release brings."""
    with pytest.raises(InvalidInput, match=r"must not begin with 'penstock\.'"):
        await create_lane(db, "penstock.mail", who="ann")

    built_in = await create_lane(db, "penstock.mail", who="app", owner="mail")

    assert await create_lane(db, "penstock.mail", who="ann") == built_in
