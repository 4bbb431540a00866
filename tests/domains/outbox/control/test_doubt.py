"""What may have been paid never ends as failed by a verb, whatever has held it since."""

from collections.abc import AsyncGenerator
from decimal import Decimal
from uuid import UUID

import pytest

from penstock.base.clock import FakeClock
from penstock.kernel.item import Dead, Hold, Retry
from tests.domains.outbox.control.control_scene import Scene, opened_scene


@pytest.fixture
async def scene(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """An outbox whose rail is a list, and an approver."""
    async with opened_scene(dsn, clock) as opened:
        await opened.key("ann", "approve", "read")
        yield opened


async def lost(scene: Scene) -> UUID:
    """Return an instruction whose worker died after its start; the reconciler has not looked."""
    first = await scene.send("a-1", "500")
    await scene.lose()
    assert (await scene.item(first)).reason == "lost"
    return first


async def suspend(scene: Scene) -> None:
    await scene.post("ops", "/outbox/participants/shop/suspend")


async def limit(scene: Scene) -> None:
    await scene.limit(approval_above=Decimal(100))


HELD_BY = {"suspended": suspend, "awaits approval: over 100 EUR": limit}


@pytest.mark.parametrize("reason", HELD_BY)
async def test_a_lost_attempt_stays_in_doubt_after_a_release(scene: Scene, reason: str) -> None:
    """As failed, it could be sent under another key although the dead worker had paid it."""
    first = await lost(scene)
    await HELD_BY[reason](scene)
    await scene.decide("ops", "release", first)
    await scene.run()
    assert (await scene.item(first)).reason == reason
    await limit(scene)

    skipped = await scene.decide("ops", "skip", first)
    rejected = await scene.decide("ann", "reject", first)

    assert (skipped.status_code, rejected.status_code) == (409, 409)
    assert skipped.json()["type"].endswith("result-unknown")
    assert rejected.json()["type"].endswith("result-unknown")
    assert (await scene.item(first)).state == "held"
    assert await scene.archive(first) == [("UNKNOWN", "LOST")]


async def test_lost_attempts_are_archived_before_many_are_released(scene: Scene) -> None:
    first = await lost(scene)

    released = await scene.post("ops", "/outbox/instructions/release")

    assert released.json()["changed"] == 1
    assert await scene.archive(first) == [("UNKNOWN", "LOST")]


async def test_a_clear_refusal_ends_the_doubts_before_it(scene: Scene) -> None:
    """It is only called again if no earlier call has paid; otherwise it could never be ended."""
    first = await lost(scene)
    await scene.decide("ops", "release", first)
    scene.rail.outcomes = [Retry("busy")]
    await scene.run()

    skipped = await scene.decide("ops", "skip", first)

    assert skipped.status_code == 200, skipped.text
    assert [state for state, _ in await scene.archive(first)] == ["UNKNOWN", "RETRYABLE", "FAILED"]


async def test_what_was_refused_before_can_be_rejected(scene: Scene) -> None:
    """It was not paid, so that a person who must approve it may also reject it."""
    first = await scene.send("a-1", "500")
    scene.rail.outcomes = [Retry("busy")]
    await scene.run()
    await limit(scene)
    await scene.run_after(hours=1)

    rejected = await scene.decide("ann", "reject", first)

    assert rejected.status_code == 200, rejected.text
    assert (await scene.archive(first))[-1] == ("FAILED", "REJECTED")


async def test_what_the_rail_reports_as_paid_is_not_rejected(scene: Scene) -> None:
    """After a restore from a backup it was never tried here, and is paid all the same."""
    await limit(scene)
    first = await scene.send("a-1", "500")
    await scene.run()
    await scene.app.pool.execute(
        "INSERT INTO penstock.outbox_result (outbox_id, status, occurred_at, received_at,"
        " due_at) VALUES ($1, 'paid', now(), now(), now())",
        first,
    )

    rejected = await scene.decide("ann", "reject", first)

    assert rejected.status_code == 409
    assert "penstock outbox approve ends it" in rejected.json()["detail"]
    assert (await scene.item(first)).state == "held"


PAID_ENDS = {
    "waits": "its next attempt ends it",
    "lost": "the reconciler, by itself and within minutes, ends it",
    "suspended": "penstock outbox resume ends it",
    "held": "penstock outbox release ends it",
    "dead": "penstock outbox release ends it",
}


@pytest.mark.parametrize("place", PAID_ENDS)
async def test_skip_names_what_ends_a_paid_instruction(scene: Scene, place: str) -> None:
    """It named release for each, which is refused for one that waits, and of no use for others."""
    if place == "suspended":
        await suspend(scene)
    if place == "dead":
        scene.rail.outcomes = [Dead("refused")]
    first = await (lost(scene) if place == "lost" else scene.send("a-1"))
    if place in {"suspended", "dead"}:
        await scene.run()
    if place == "held":
        await scene.decide("ops", "hold", first)
    await scene.app.pool.execute(
        "INSERT INTO penstock.outbox_result (outbox_id, status, occurred_at, received_at,"
        " due_at) VALUES ($1, 'paid', now(), now(), now())",
        first,
    )

    skipped = await scene.decide("ops", "skip", first)

    assert skipped.status_code == 409
    assert PAID_ENDS[place] in skipped.json()["detail"]


RESOLVE, RELEASE = "penstock outbox resolve", "penstock outbox release"


@pytest.mark.parametrize("verb", ["skip", "reject", "hold", "approve"])
async def test_a_verb_that_cannot_decide_a_doubt_names_the_one_that_can(
    scene: Scene, verb: str
) -> None:
    """Each verb sent the operator to another one, in a circle."""
    first = await lost(scene)
    await scene.key("all", "admin", "approve")

    refused = await scene.decide("all", verb, first)
    resolved = await scene.decide("ops", "resolve", first, resolution="again")

    assert refused.status_code == 409
    assert RESOLVE in refused.json()["detail"]
    assert resolved.status_code == 200, resolved.text


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_a_doubt_that_waits_to_be_sent_again_is_not_held(scene: Scene, *, many: bool) -> None:
    """Held by an operator, it was shown as pending although it may have been paid."""
    first = await lost(scene)
    await scene.decide("ops", "release", first)

    if many:
        held = await scene.post("ops", "/outbox/instructions/hold")
        assert (held.json()["changed"], held.json()["unchanged"]) == (0, 1)
    else:
        held = await scene.decide("ops", "hold", first)
        assert held.status_code == 409
        assert "may have been paid; its next attempt asks the rail" in held.json()["detail"]

    assert (await scene.item(first)).state == "ready"


async def test_a_doubt_that_waits_to_be_sent_again_is_not_skipped(scene: Scene) -> None:
    first = await lost(scene)
    await scene.decide("ops", "release", first)

    skipped = await scene.decide("ops", "skip", first)
    resolved = await scene.decide("ops", "resolve", first, resolution="failed")

    assert (skipped.status_code, resolved.status_code) == (409, 409)
    assert "its next attempt asks the rail" in skipped.json()["detail"]
    assert RELEASE in resolved.json()["detail"]


async def test_an_approval_of_a_doubt_counts_once_the_doubt_has_ended(scene: Scene) -> None:
    """What is in doubt and over a limit is held as unknown, with the limit in the reason."""
    first = await scene.send("a-1", "500")
    scene.rail.outcomes = [Hold("unknown: awaits approval: over 100 EUR on this day")]
    await scene.run()

    approved = await scene.decide("ann", "approve", first)
    assert (await scene.item(first)).state == "held"
    await limit(scene)
    await scene.decide("ops", "resolve", first, resolution="again")
    await scene.run()

    assert approved.status_code == 200, approved.text
    assert scene.rail.sent == ["a-1", "a-1"]
