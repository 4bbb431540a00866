"""A lane's policy is a row: every field can be set, is checked by name, and is audited."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Item, Penstock
from penstock.base.errors import InvalidInput
from penstock.base.settings import read_once
from penstock.kernel.errors import UnknownLane
from penstock.kernel.inspect import list_audit, measure_lanes
from penstock.kernel.lane import (
    FIELDS,
    Lane,
    create_lane,
    list_lanes,
    policy_of,
    read_lane,
    set_lane,
)
from penstock.kernel.limit_key import KeyLimit
from penstock.postgres.pool import Connection
from tests.kernel.scene import DAY, HOUR, MINUTE, SECOND, put, take

GOOD: dict[str, Any] = {
    "enabled": False,
    "batch_size": 1_000,
    "dispatch_interval": 5 * SECOND,
    "rate": 12.5,
    "burst": 7,
    "jitter_window": timedelta(milliseconds=4_000),
    "pre_start_buffer": MINUTE,
    "max_attempts": 9,
    "lease": 2 * MINUTE,
    "concurrency": 3,
    "concurrency_total": 8,
    "key_limits": {"tenant": KeyLimit(rate=20), "provider": KeyLimit(concurrency=5)},
    "backoff_base": 30 * SECOND,
    "backoff_multiplier": 1.5,
    "backoff_cap": 2 * HOUR,
    "backoff_jitter": 0.2,
    "backoff_first_exponent": 1,
    "ordering": "per_key",
    "on_dead_head": "skip",
    "on_lost": "hold",
    "error_detail": "message",
    "retention": 7 * DAY,
    "payload_bytes_max": 1_024,
    "slot_pool": "default",
}

FAR = timedelta(days=999_999)
BAD: dict[str, list[Any]] = {
    "enabled": [None, "perhaps"],
    "batch_size": [0, 10_001, 10**12, None, "many", 1.5],
    "dispatch_interval": [-SECOND, 2 * DAY, FAR, None, 5],
    "rate": [0, -1, 2_000_000, "fast", float("nan"), float("inf")],
    "burst": [0, 1_000_001, None],
    "jitter_window": [-SECOND, 2 * HOUR, "4000"],
    "pre_start_buffer": [-SECOND, 2 * HOUR],
    "max_attempts": [0, 1_001, None],
    "lease": [timedelta(0), SECOND / 2, 2 * DAY],
    "concurrency": [0, 10_001],
    "concurrency_total": [0, 1_000_001, "8", 1.5],
    "key_limits": [
        5,
        [1],
        {"tenant": 5},
        {"Tenant": {"rate": 1}},
        {"tenant": {}},
        {"tenant": {"rate": 0}},
        {"tenant": {"rate": "20"}},
        {"tenant": {"concurrency": 1.5}},
        {"tenant": {"burst": 2}},
        {"tenant": {"rate": 20, "concurrency": 10_001}},
        {1: {"rate": 1}},
    ],
    "backoff_base": [timedelta(0), -SECOND, 2 * HOUR],
    "backoff_multiplier": [0.5, 101, float("nan")],
    "backoff_cap": [31 * DAY],
    "backoff_jitter": [-0.1, 1.5, None],
    "backoff_first_exponent": [-1, 11],
    "ordering": ["fifo", None, 1],
    "on_dead_head": ["ignore", None],
    "on_lost": ["forget", None],
    "error_detail": ["all", None],
    "retention": [HOUR, timedelta(days=40_000)],
    "payload_bytes_max": [1, 2**31],
    "slot_pool": ["nowhere", "", 1],
}


@pytest.mark.covers("A94")
async def test_a_new_lane_has_the_documented_defaults(db: Connection) -> None:
    lane = await create_lane(db, "new", who="test")

    assert (lane.enabled, lane.batch_size, lane.rate, lane.max_attempts) == (True, 500, None, 5)
    assert lane.pre_start_buffer == lane.dispatch_interval == lane.jitter_window == timedelta(0)
    assert (lane.lease, lane.ordering, lane.on_dead_head) == (30 * SECOND, "none", "block")
    assert lane.payload_bytes_max == 256 * 1024


@pytest.mark.covers("C28", "C29", "C30", "C31")
async def test_a_new_lane_of_an_app_repeats_as_the_environment_says(
    dsn: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that no lane follows would only look like settings."""
    await open_with_lane(dsn, "before")
    for name, value in {
        "DISPATCH_MAX_ATTEMPTS": "7",
        "DISPATCH_BACKOFF_BASE_SECONDS": "15",
        "DISPATCH_BACKOFF_MAX_SECONDS": "60",
        "DISPATCH_BACKOFF_JITTER": "0.5",
    }.items():
        monkeypatch.setenv(name, value)
    read_once.cache_clear()
    await open_with_lane(dsn, "after")
    read_once.cache_clear()

    before, after = await read_lane(db, "before"), await read_lane(db, "after")

    assert (before.max_attempts, after.max_attempts) == (5, 7)
    assert (before.backoff.base, after.backoff.base) == (30 * SECOND, 15 * SECOND)
    assert (before.backoff.cap, after.backoff.cap) == (HOUR, MINUTE)
    assert (before.backoff.jitter, after.backoff.jitter) == (0.2, 0.5)


async def open_with_lane(dsn: str, name: str) -> None:
    """Open and close an app that has one handler."""
    app = Penstock(dsn)

    @app.handler(name)
    async def handle(_: Item[None]) -> None: ...

    async with app:
        pass


def test_the_examples_of_this_test_cover_every_field() -> None:
    assert GOOD.keys() == BAD.keys() == FIELDS.keys()


@pytest.mark.covers("A73")
async def test_every_field_can_be_set_and_read_back(db: Connection, lane: Lane) -> None:
    for name, value in GOOD.items():
        changed = await set_lane(db, lane.name, who="test", **{name: value})
        assert policy_of(changed)[name] == value

    assert GOOD.items() <= policy_of(await read_lane(db, lane.name)).items()


@pytest.mark.covers("C40")
@pytest.mark.parametrize("name", BAD)
async def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    shared: Connection, shared_lane: Lane, name: str
) -> None:
    for value in BAD[name]:
        with pytest.raises(InvalidInput) as refused:
            await set_lane(shared, shared_lane.name, who="test", **{name: value})
        assert refused.value.field == name, f"{value!r}: {refused.value}"

    assert await read_lane(shared, shared_lane.name) == shared_lane


async def test_a_cap_below_the_base_is_refused(db: Connection, lane: Lane) -> None:
    with pytest.raises(InvalidInput, match="at most the cap"):
        await set_lane(db, lane.name, who="test", backoff_base=MINUTE, backoff_cap=SECOND)


async def test_a_field_that_is_none_is_refused(db: Connection, lane: Lane) -> None:
    for name in ("speed", "lane_id", "version"):
        change: dict[str, Any] = {name: 1}
        with pytest.raises(InvalidInput, match=name):
            await set_lane(db, lane.name, who="test", **change)


async def test_one_wrong_value_keeps_the_others_from_being_set(db: Connection, lane: Lane) -> None:
    with pytest.raises(InvalidInput):
        await set_lane(db, lane.name, who="test", batch_size=7, burst=0)

    assert await read_lane(db, lane.name) == lane


@pytest.mark.parametrize("name", ["", "Mail", "-mail", "ma il", "x" * 64, "mäil", "a\x00b"])
async def test_a_lanes_name_is_a_slug(shared: Connection, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await create_lane(shared, name, who="test")

    assert refused.value.field == "name"


async def test_creating_a_lane_again_does_not_change_it(db: Connection) -> None:
    """Only its row counts once it is there; a deployment must not undo an operator's change."""
    first = await create_lane(db, "new", who="test", batch_size=7)

    assert await create_lane(db, "new", who="test", batch_size=8) == first


async def test_a_lane_with_a_wrong_policy_is_not_created(db: Connection) -> None:
    with pytest.raises(InvalidInput):
        await create_lane(db, "new", who="test", batch_size=0)

    assert "new" not in {lane.name for lane in await list_lanes(db)}


async def test_a_change_is_audited_with_before_and_after(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="ann", rate=5, lease=MINUTE)

    (entry, *_) = await list_audit(db, subject=lane.name)

    assert (entry.who, entry.action, entry.subject) == ("ann", "lane.changed", lane.name)
    assert json.loads(entry.before or "") == {"rate": None, "lease": 30}
    assert json.loads(entry.after or "") == {"rate": 5, "lease": 60}
    assert entry.audited_at is not None


async def test_a_refused_change_is_not_audited(db: Connection, lane: Lane) -> None:
    known = await list_audit(db)

    with pytest.raises(InvalidInput):
        await set_lane(db, lane.name, who="ann", rate=0)

    assert await list_audit(db) == known


async def test_the_audit_is_read_page_by_page(db: Connection, lane: Lane) -> None:
    for size in range(1, 6):
        await set_lane(db, lane.name, who="ann", batch_size=size)

    first = await list_audit(db, subject=lane.name, limit=2)
    second = await list_audit(db, subject=lane.name, before=first[-1].audit_id, limit=2)

    sizes = [json.loads(entry.after or "")["batch_size"] for entry in [*first, *second]]
    assert sizes == [5, 4, 3, 2]


async def test_every_change_raises_the_version(db: Connection, lane: Lane) -> None:
    changed = await set_lane(db, lane.name, who="test", batch_size=7)

    assert changed.version == lane.version + 1


async def test_an_unknown_lane_is_answered_with_the_known_ones(db: Connection, lane: Lane) -> None:
    with pytest.raises(UnknownLane) as unknown:
        await set_lane(db, "mial", who="test", batch_size=7)

    assert unknown.value.known == (lane.name, "payment")


@pytest.mark.covers("A17", "A73")
async def test_a_claim_reads_the_current_policy(db: Connection, lane: Lane) -> None:
    """Whatever the worker remembers: the batch size is read in the claim itself."""
    for number in range(4):
        await put(db, lane, number)
    await set_lane(db, lane.name, who="test", batch_size=3, lease=HOUR)

    lease = await take(db, lane)

    assert len(lease.items) == 3
    row = await db.fetchrow("SELECT expires_at - claimed_at AS length FROM penstock.lease")
    assert row is not None
    assert row["length"] == HOUR


async def test_depths_are_counted_by_lane(db: Connection, lane: Lane) -> None:
    for number in range(3):
        await put(db, lane, number)
    await take(db, lane, limit=1)
    await put(db, lane, 3, due_at=datetime(2020, 1, 1, tzinfo=UTC))

    (depth,) = [each for each in await measure_lanes(db) if each.lane == lane.name]

    assert (depth.lane, depth.leased, depth.dead) == (lane.name, 1, 0)
    assert (depth.ready, depth.due) == (3, 1)
