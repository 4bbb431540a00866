"""Why an item has not run, over REST."""

from httpx import AsyncClient

from penstock import Hold, Penstock
from tests.api.scene import accept, end_all, problem


async def test_the_reasons_of_an_item_are_shown(admin: AsyncClient, penstock: Penstock) -> None:
    item_id = await accept(admin)
    await end_all(penstock, Hold("no answer"))

    (reason,) = (await admin.get(f"/items/{item_id}/why")).json()["reasons"]

    assert reason["code"] == "held"
    assert reason["sentence"].startswith(f"item {item_id} is held since ")
    assert reason["data"]["reason"] == "no answer"
    assert reason["data"]["verbs"] == ["release", "resolve", "cancel"]
    problem(await admin.get("/items/1/why"), 404, "unknown-item")


async def test_the_reasons_of_a_lane_are_shown(admin: AsyncClient) -> None:
    await accept(admin)

    (reason,) = (await admin.get("/lanes/work/why")).json()["reasons"]

    assert reason == {
        "code": "no_worker",
        "sentence": "no worker runs lane work",
        "data": {"seen_at": None},
    }
