"""Lanes over REST: a policy that is read, set in part, and audited."""

from typing import Any

import pytest
from httpx import AsyncClient

from tests.api.scene import LANES, accept, problem


async def test_a_lane_is_shown_with_durations_that_people_can_read(admin: AsyncClient) -> None:
    lane = (await admin.get("/lanes/work")).json()

    assert lane["name"] == "work"
    assert lane["rate"] is None
    assert lane["lease"] == "PT30S"
    assert lane["retention"] == "P30D"
    assert set(lane["backoff"]) == {"base", "multiplier", "cap", "jitter", "first_exponent"}
    assert "lane_id" not in lane


async def test_all_lanes_are_listed_by_name(admin: AsyncClient) -> None:
    lanes = (await admin.get("/lanes")).json()["lanes"]

    assert [lane["name"] for lane in lanes] == LANES


async def test_a_lane_is_made_by_putting_it(admin: AsyncClient) -> None:
    policy = {"rate": 100, "burst": 10, "backoff": {"base": "PT2S", "first_exponent": 1}}

    made = await admin.put("/lanes/mails", json=policy)
    again = await admin.put("/lanes/mails", json=policy)

    assert made.status_code == 201
    assert again.status_code == 200
    lane = (await admin.get("/lanes/mails")).json()
    assert (lane["rate"], lane["burst"]) == (100, 10)
    assert (lane["backoff"]["base"], lane["backoff"]["first_exponent"]) == ("PT2S", 1)


async def test_putting_a_lane_sets_what_is_given_and_leaves_the_rest(admin: AsyncClient) -> None:
    await admin.put("/lanes/mails", json={"rate": 100, "batch_size": 7})

    lane = (await admin.put("/lanes/mails", json={"rate": None})).json()

    assert lane["rate"] is None
    assert lane["batch_size"] == 7


async def test_a_lane_gets_key_limits_and_loses_them(admin: AsyncClient) -> None:
    limits = {"tenant": {"rate": 20.0, "concurrency": None}}

    given = await admin.patch("/lanes/work", json={"key_limits": {"tenant": {"rate": 20}}})
    wrong = await admin.patch("/lanes/work", json={"key_limits": {"tenant": {"burst": 2}}})
    taken = await admin.patch("/lanes/work", json={"key_limits": None})

    assert given.json()["key_limits"] == limits
    assert problem(wrong, 400, "invalid-input")["field"].startswith("key_limits")
    assert taken.json()["key_limits"] is None


async def test_a_part_of_a_policy_is_changed_and_audited(admin: AsyncClient) -> None:
    """Who changed a rate last night must be known in the morning."""
    before = (await admin.get("/lanes/work")).json()

    after = (await admin.patch("/lanes/work", json={"batch_size": 1000, "rate": 5.5})).json()

    assert after == before | {
        "batch_size": 1000, "rate": 5.5, "version": before["version"] + 1
    }  # fmt: skip
    (line, *_) = (await admin.get("/audit", params={"subject": "work"})).json()["items"]
    assert line["action"] == "lane.changed"
    assert line["who"].startswith("key:")
    assert line["before"] == {"batch_size": 500, "rate": None}
    assert line["after"] == {"batch_size": 1000, "rate": 5.5}


async def test_null_takes_a_rate_away_and_leaving_it_out_keeps_it(admin: AsyncClient) -> None:
    await admin.patch("/lanes/work", json={"rate": 5})

    kept = (await admin.patch("/lanes/work", json={"burst": 2})).json()
    taken = (await admin.patch("/lanes/work", json={"rate": None})).json()

    assert kept["rate"] == 5
    assert taken["rate"] is None


async def test_changing_nothing_writes_nothing(admin: AsyncClient) -> None:
    before = (await admin.get("/lanes/work")).json()

    after = (await admin.patch("/lanes/work", json={})).json()

    assert after == before


async def test_a_lane_is_paused_and_resumed(admin: AsyncClient) -> None:
    paused = (await admin.post("/lanes/work/pause")).json()
    resumed = (await admin.post("/lanes/work/resume")).json()

    assert paused["enabled"] is False
    assert resumed["enabled"] is True


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 10_001}, "batch_size"),
        ({"batch_size": 2**40}, "batch_size"),
        ({"batch_size": "many"}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"rate": 0}, "rate"),
        ({"rate": -1}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"lease": 30}, "lease"),
        ({"lease": "30 seconds"}, "lease"),
        ({"lease": "PT0S"}, "lease"),
        ({"retention": "P999999999D"}, "retention"),
        ({"ordering": "random"}, "ordering"),
        ({"backoff": {"base": "PT0S"}}, "backoff.base"),
        ({"backoff": {"jitter": 1.5}}, "backoff.jitter"),
        ({"backoff": {"colour": 1}}, "backoff.colour"),
        ({"backoff": None}, "backoff"),
        ({"colour": "red"}, "colour"),
        ({"version": 3}, "version"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("method", "name"), [("PATCH", "work"), ("PUT", "work"), ("PUT", "fresh")])
async def test_a_wrong_policy_is_refused_by_field_and_nothing_is_written(
    shared_admin: AsyncClient, *, method: str, name: str, change: dict[str, Any], field: str
) -> None:
    before = (await shared_admin.get("/lanes")).json()

    response = await shared_admin.request(method, f"/lanes/{name}", json=change)

    assert problem(response, 400, "invalid-input")["field"] == field
    assert (await shared_admin.get("/lanes")).json() == before


@pytest.mark.parametrize("name", ["UPPER", "a b", "-dash", "x" * 64, "%C3%A9"])
async def test_a_lane_must_have_a_plain_name(shared_admin: AsyncClient, name: str) -> None:
    response = await shared_admin.put(f"/lanes/{name}", json={})

    assert problem(response, 400, "invalid-input")["field"] == "name"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/lanes/none"),
        ("PATCH", "/lanes/none"),
        ("POST", "/lanes/none/pause"),
        ("POST", "/lanes/none/resume"),
        ("GET", "/items?lane=none"),
        ("GET", "/dead?lane=none"),
    ],
)
async def test_the_error_for_an_unknown_lane_lists_the_known_ones(
    shared_admin: AsyncClient, method: str, path: str
) -> None:
    response = await shared_admin.request(method, path, json={"burst": 2})

    assert problem(response, 404, "unknown-lane")["known"] == LANES


async def test_the_ordering_of_a_lane_with_work_in_it_is_kept(admin: AsyncClient) -> None:
    """Lines are drawn when an item is accepted."""
    await accept(admin)

    response = await admin.patch("/lanes/work", json={"ordering": "per_key"})

    assert problem(response, 409, "lane-not-empty")["field"] == "ordering"
    assert (await admin.get("/lanes/work")).json()["ordering"] == "none"
