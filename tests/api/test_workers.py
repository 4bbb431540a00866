"""Workers over REST."""

from httpx import AsyncClient

from penstock import Penstock
from penstock.kernel.heartbeat import report_worker


async def test_workers_are_listed_by_lane(admin: AsyncClient, penstock: Penstock) -> None:
    """An operator without a shell sees which process runs a lane."""
    await report_worker(penstock.pool, "host:7:ab", ["work"])
    await report_worker(penstock.pool, "host:8:cd", ["mail"])

    everyone = (await admin.get("/workers")).json()["workers"]
    (only,) = (await admin.get("/workers", params={"lane": "work"})).json()["workers"]

    assert [each["name"] for each in everyone] == ["host:7:ab", "host:8:cd"]
    assert only["name"] == "host:7:ab"
    assert only["lanes"] == ["work"]
    assert only["is_alive"] is True
