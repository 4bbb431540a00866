"""Dead letters come back in bulk: counted first, durable, in steps, and each once."""

import pytest

from penstock import Dead, Done
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.errors import UnknownLane, UnknownReplay
from penstock.kernel.inspect import balance, list_audit, list_dead
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane
from penstock.kernel.replay import (
    STEP_ITEMS,
    STEP_REPLAY,
    continue_replays,
    count_dead,
    list_replays,
    read_replay,
    start_replay,
)
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import DAY, SECOND, attempt_once, end, ids, put, state_of, take, try_claim


async def die(db: Connection, lane: Lane, count: int, *, reason: str = "no") -> None:
    """Let items die now, by the database's clock: a replay takes what died before it."""
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(count)])
    while taken := ids(lease := await take(db, lane, now=None)):
        await end(db, lane, lease, Dead(reason), now=None)
        count -= len(taken)
        if count == 0:
            return


@pytest.mark.covers("E77", "A96")
async def test_a_replay_counts_first_and_then_retries_every_item(
    db: Connection, lane: Lane
) -> None:
    await die(db, lane, 3)

    assert await count_dead(db, lane.name) == 3
    replay = await start_replay(db, lane.name, who="ops")
    assert (replay.counted, replay.replayed, replay.finished_at) == (3, 0, None)
    assert (await balance(db)).dead == 3

    assert await continue_replays(db) == 3

    done = await read_replay(db, replay.replay_id)
    assert done.replayed == 3
    assert done.finished_at is not None
    assert len((await take(db, lane, now=None)).items) == 3
    assert (await balance(db)).is_even


async def test_a_replay_continues_where_it_was_interrupted(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """The progress is committed with the items, so a crash between steps repeats nothing."""
    await die(db, lane, 25)
    replay = await start_replay(db, lane.name, who="ops")

    await db.fetchval(STEP_REPLAY, 10, None)
    transaction = db.transaction()
    await transaction.start()
    await db.fetchval(STEP_REPLAY, 10, None)
    await transaction.rollback()  # The sweeper died in the middle of its second step.
    assert (await read_replay(db, replay.replay_id)).replayed == 10
    assert (await balance(db)).dead == 15

    async with pool.acquire() as another:
        assert await another.fetchval(STEP_REPLAY, 10, None) == 10
        assert await another.fetchval(STEP_REPLAY, 10, None) == 5

    finished = await read_replay(db, replay.replay_id)
    assert (finished.replayed, finished.finished_at is not None) == (25, True)
    assert (await balance(db)).ready == 25
    assert STEP_ITEMS > 25


async def test_an_item_that_dies_again_is_not_replayed_by_the_same_job(
    db: Connection, lane: Lane
) -> None:
    """Otherwise one broken receiver makes a replay that never ends."""
    await die(db, lane, 4)
    replay = await start_replay(db, lane.name, who="ops")
    await db.fetchval(STEP_REPLAY, 2, None)
    lease = await take(db, lane, now=None)
    await end(db, lane, lease, Dead("no"), now=None)

    while (await read_replay(db, replay.replay_id)).finished_at is None:
        await continue_replays(db)

    assert (await read_replay(db, replay.replay_id)).replayed == 4
    assert sorted(dead.id for dead in await list_dead(db)) == sorted(ids(lease))


async def test_an_item_that_dies_after_the_request_is_not_replayed(
    db: Connection, lane: Lane
) -> None:
    await die(db, lane, 1)
    await start_replay(db, lane.name, who="ops")
    await die(db, lane, 1, reason="later")

    await continue_replays(db)

    assert [dead.reason for dead in await list_dead(db)] == ["later"]


async def test_only_one_reason_is_replayed_when_asked(db: Connection, lane: Lane) -> None:
    await die(db, lane, 2, reason="503")
    await die(db, lane, 3, reason="404")

    assert await count_dead(db, lane.name, reason="503") == 2
    await start_replay(db, lane.name, who="ops", reason="503")
    await continue_replays(db)

    assert {dead.reason for dead in await list_dead(db)} == {"404"}
    assert (await balance(db)).ready == 2


async def test_an_item_past_its_deadline_stays_dead(db: Connection, lane: Lane) -> None:
    now = await db.fetchval("SELECT now()")
    late = await put(db, lane, at=now, not_after=now + SECOND)
    fine = await put(db, lane, at=now, not_after=now + DAY)
    await attempt_once(db, lane, Dead("no"), now=now)
    await start_replay(db, lane.name, who="ops")

    assert await continue_replays(db, now=now + 2 * SECOND) == 1

    assert (await state_of(db, late), await state_of(db, fine)) == ("dead", "scheduled")
    assert [each.finished_at is None for each in await list_replays(db)] == [False]


async def test_replaying_nothing_finishes_at_once(db: Connection, lane: Lane) -> None:
    replay = await start_replay(db, lane.name, who="ops")

    assert await continue_replays(db) == 0

    assert (await read_replay(db, replay.replay_id)).finished_at is not None


async def test_replays_are_taken_one_after_another(db: Connection, lane: Lane) -> None:
    await die(db, lane, 2)
    first = await start_replay(db, lane.name, who="ops")
    second = await start_replay(db, lane.name, who="ops")

    await continue_replays(db)
    await continue_replays(db)

    replayed = [(each.replay_id, each.replayed) for each in await list_replays(db)]
    assert replayed == [(second.replay_id, 0), (first.replay_id, 2)]


async def test_a_replay_is_audited_and_its_items_can_be_done(db: Connection, lane: Lane) -> None:
    await die(db, lane, 1)
    replay = await start_replay(db, lane.name, who="ann", reason="no")
    await continue_replays(db)

    await end(db, lane, await take(db, lane, now=None), Done(), now=None)

    (entry, *_) = await list_audit(db, subject=lane.name)
    assert (entry.who, entry.action) == ("ann", "dead.replayed")
    assert f'"replay_id": {replay.replay_id}' in (entry.after or "")
    assert await try_claim(db, lane, now=None) is None
    assert (await balance(db)).done == 1


async def test_an_unknown_lane_or_replay_is_named(db: Connection) -> None:
    with pytest.raises(UnknownReplay):
        await read_replay(db, 7)
    with pytest.raises(UnknownLane):
        await start_replay(db, "nowhere", who="ops")
    with pytest.raises(UnknownLane):
        await count_dead(db, "nowhere")
