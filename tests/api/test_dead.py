"""Dead letters over REST: listed, counted first, replayed by a durable job."""

from httpx import AsyncClient

from penstock import Dead, Penstock
from penstock.kernel.replay import continue_replays
from tests.api.scene import accept, count_items, end_all, problem


async def bury(admin: AsyncClient, penstock: Penstock, reason: str, *, count: int = 1) -> list[int]:
    ids = [await accept(admin) for _ in range(count)]
    await end_all(penstock, Dead(reason))
    return ids


async def test_dead_letters_are_listed_with_their_reason(
    admin: AsyncClient, penstock: Penstock
) -> None:
    ids = await bury(admin, penstock, "no such account", count=3)

    first = (await admin.get("/dead", params={"lane": "work", "limit": 2})).json()
    second = (await admin.get("/dead", params={"after": first["next"], "limit": 2})).json()

    assert [letter["id"] for letter in first["items"] + second["items"]] == ids
    assert second["next"] is None
    assert first["items"][0]["reason"] == "no such account"
    assert first["items"][0]["attempts"] == 1


async def test_a_dry_run_counts_and_changes_nothing(admin: AsyncClient, penstock: Penstock) -> None:
    """Somebody who is about to repeat ten thousand payments wants to know it first."""
    await bury(admin, penstock, "a", count=2)
    await bury(admin, penstock, "b")

    both = await admin.post("/dead/replay", json={"lane": "work", "dry_run": True})
    one = await admin.post("/dead/replay", json={"lane": "work", "reason": "b", "dry_run": True})

    assert both.status_code == 200
    assert both.json() == {"counted": 3, "replay": None}
    assert one.json()["counted"] == 1
    assert (await count_items(penstock)).dead == 3
    assert (await admin.get("/dead/replays")).json() == {"replays": []}


async def test_a_replay_is_a_job_that_can_be_followed(
    admin: AsyncClient, penstock: Penstock
) -> None:
    await bury(admin, penstock, "a", count=2)
    await bury(admin, penstock, "b")

    started = await admin.post("/dead/replay", json={"lane": "work", "reason": "a"})
    job = started.json()["replay"]
    async with penstock.pool.acquire() as db:
        await continue_replays(db)
    shown = (await admin.get(f"/dead/replays/{job['replay_id']}")).json()

    assert started.status_code == 202
    assert started.json()["counted"] == job["counted"] == 2
    assert job["finished_at"] is None
    assert shown["replayed"] == 2
    assert shown["finished_at"] is not None
    assert shown["created_by"].startswith("key:")
    assert (await admin.get("/dead/replays")).json() == {"replays": [shown]}
    counted = await count_items(penstock)
    assert (counted.ready, counted.dead) == (2, 1)


async def test_a_replay_of_an_unknown_lane_or_with_a_wrong_field_starts_nothing(
    admin: AsyncClient,
) -> None:
    unknown = await admin.post("/dead/replay", json={"lane": "none"})
    typo = await admin.post("/dead/replay", json={"lane": "work", "dryrun": True})
    nul = await admin.post("/dead/replay", json={"lane": "work", "reason": "a\x00"})

    problem(unknown, 404, "unknown-lane")
    assert problem(typo, 400, "invalid-input")["field"] == "dryrun"
    assert problem(nul, 400, "invalid-input")["field"] == "reason"
    assert (await admin.get("/dead/replays")).json() == {"replays": []}


async def test_a_replay_that_is_not_there_is_not_found(admin: AsyncClient) -> None:
    response = await admin.get("/dead/replays/17")

    assert problem(response, 404, "unknown-replay")["replay_id"] == 17
