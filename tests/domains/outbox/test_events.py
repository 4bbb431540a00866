"""Decisions of people are announced and counted like what a worker does, in their transaction."""

import json
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from penstock.base.clock import FakeClock
from penstock.base.log import get_logger
from penstock.compose import webhooks
from penstock.compose.outbox import make_archive
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.recheck import recheck_one
from penstock.domains.outbox.event import OutboxEvent
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.item import Dead
from penstock.postgres.pool import Connection
from tests.domains.outbox.control.control_scene import Scene, opened_scene


@pytest.fixture
async def scene(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """An outbox beside webhooks, where more than 100 EUR need an approval."""
    async with opened_scene(dsn, clock, webhooks.DOMAIN) as opened:
        await opened.limit(approval_above=Decimal(100))
        await opened.key("ann", "approve", "read")
        yield opened


async def events(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    rows = await scene.app.pool.fetch("SELECT type, data FROM penstock.events")
    return [(row["type"], json.loads(row["data"])) for row in rows]


async def failed(scene: Scene) -> list[tuple[str, str]]:
    """Return the instruction and the error code of each event; all must be about a failure."""
    found = await events(scene)
    assert {kind for kind, _ in found} <= {"outbox.failed"}
    return [(about["outbox_id"], about["error_code"]) for _, about in found]


def counted(scene: Scene, state: str) -> float:
    return scene.app.meter.counters.get(("attempts_total", (("lane", LANE), ("state", state))), 0)


async def suspended_by_a_failure(scene: Scene) -> UUID:
    await scene.clients["ops"].put(
        "/outbox/failure-policies", json={"scope": "all", "policy": "suspend"}
    )
    scene.rail.outcomes.append(Dead("refused"))
    first = await scene.send("a-1")
    await scene.run()
    return first


async def test_a_skipped_instruction_is_announced_as_failed_and_counted(scene: Scene) -> None:
    """A receiver that waits for the end of a payment must hear of every end."""
    first = await scene.send("a-1")

    assert (await scene.decide("ops", "skip", first)).status_code == 200

    assert await failed(scene) == [(str(first), "SKIPPED")]
    assert counted(scene, "FAILED") == 1


async def test_a_rejected_instruction_is_announced_as_failed_and_counted(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.run()

    assert (await scene.decide("ann", "reject", first)).status_code == 200

    assert await failed(scene) == [(str(first), "REJECTED")]
    assert counted(scene, "FAILED") == 1


async def test_what_the_service_rejects_later_is_announced(scene: Scene) -> None:
    """A worker held the head after the decision: nobody but the service ends it."""
    first = await scene.send("a-1", "500")
    await scene.run()
    await scene.app.pool.execute(
        "INSERT INTO penstock.outbox_approval VALUES ($1, 'rejected', 'key-1', 'no', now())", first
    )
    await scene.app.pool.execute("INSERT INTO penstock.outbox_recheck VALUES ('shop', now())")

    async with scene.app.pool.acquire() as db:
        assert await recheck_one(db, archive=make_archive())

    assert await failed(scene) == [(str(first), "REJECTED")]


async def test_a_released_failure_is_counted_and_not_announced(scene: Scene) -> None:
    """It is a step on the way to its end, which has an event of its own."""
    scene.rail.outcomes.append(Dead("refused"))
    first = await scene.send("a-1")
    await scene.run()

    assert (await scene.decide("ops", "release", first)).status_code == 200

    assert await events(scene) == []
    assert counted(scene, "ZOMBIE_REQUEUE") == 1


async def test_a_failure_that_a_resumed_participant_passes_over_is_not_announced_again(
    scene: Scene,
) -> None:
    first = await suspended_by_a_failure(scene)

    resumed = await scene.post("ops", "/outbox/participants/shop/resume")

    assert resumed.status_code == 204
    gaps = (await scene.clients["ops"].get("/outbox/gaps")).json()["gaps"]
    assert [each["outbox_id"] for each in gaps] == [str(first)]
    assert await events(scene) == []


async def test_a_refused_decision_announces_nothing(scene: Scene) -> None:
    """The event would be about something that was rolled back."""
    await scene.send("a-1")
    behind = await scene.send("a-2")

    assert (await scene.decide("ops", "skip", behind)).status_code == 409

    assert await events(scene) == []
    assert counted(scene, "FAILED") == 0


async def test_a_decision_is_made_also_if_its_event_is_refused(scene: Scene) -> None:
    await scene.app.pool.execute("ALTER TABLE penstock.webhook_event_id ADD CHECK (false)")
    first = await scene.send("a-1")

    assert (await scene.decide("ops", "skip", first)).status_code == 200

    assert await scene.archive(first) == [("FAILED", "SKIPPED")]


async def test_a_listener_that_fails_does_not_keep_the_others_from_receiving(scene: Scene) -> None:
    """Payments end by these events: a fault of webhooks must not leave them open."""
    heard: list[UUID] = []

    async def refuse(db: Connection, _events: Sequence[OutboxEvent]) -> None:
        await db.execute("SELECT 1 / 0")

    async def hear(_db: Connection, events: Sequence[OutboxEvent]) -> None:
        heard.extend(each.outbox_id for each in events)

    first = await scene.send("a-1")
    archive = Archive(log=get_logger(), listeners=[refuse, hear])
    async with scene.app.pool.acquire() as db, db.transaction():
        await archive.write(db, first, "FAILED", who="test")

    assert heard == [first]
    assert await scene.archive(first) == [("FAILED", None)]


async def test_amounts_are_shown_without_an_exponent(scene: Scene) -> None:
    """The database driver returns 20000 as 2E+4, which many programs cannot read."""
    await scene.limit(approval_above=Decimal(10_000))
    first = await scene.send("a-1", "20000")
    await scene.run()

    waiting = (await scene.clients["ann"].get("/outbox/approvals")).json()["waiting"]
    shown = (await scene.clients["ann"].get(f"/outbox/instructions/{first}")).json()
    listed = (await scene.clients["ann"].get("/outbox/instructions")).json()["instructions"]
    await scene.decide("ann", "reject", first)

    assert (await scene.archive(first)) == [("FAILED", "REJECTED")]
    assert waiting[0]["reason"] == "awaits approval: over 10000 EUR"
    ((_, event),) = await events(scene)
    found = [waiting[0], shown["instruction"], listed[0], event]
    assert [each["amount"] for each in found] == ["20000"] * 4
