"""Four eyes: who may approve, that the first decision counts, and that nothing passes without."""

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal

import pytest

from penstock.base.clock import FakeClock
from penstock.compose.outbox import make_archive
from penstock.domains.outbox.control.approval import approve, reject
from penstock.domains.outbox.control.recheck import Recheck, recheck_one
from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.errors import Forbidden
from penstock.kernel.item import Hold
from penstock.kernel.lane import read_lane
from penstock.kernel.settle import Ended, settle
from tests.domains.outbox.control.control_scene import Scene, opened_scene

AWAITS = "awaits approval: over 100 EUR"


@pytest.fixture
async def scene(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """An outbox where more than 100 EUR need an approval, with a producer and two approvers."""
    async with opened_scene(dsn, clock) as opened:
        await opened.limit(approval_above=Decimal(100))
        await opened.key("producer", "produce", "admin", "approve")
        await opened.key("ann", "approve", "read")
        await opened.key("ben", "approve")
        yield opened


@pytest.mark.covers("E77")
async def test_an_amount_above_the_threshold_waits_for_a_second_person(scene: Scene) -> None:
    exact, above = await scene.send("a-1", "100"), await scene.send("a-2", "100.01")
    await scene.send("a-3")
    await scene.run()
    (waiting,) = (await scene.clients["ann"].get("/outbox/approvals")).json()["waiting"]

    approved = await scene.decide("ann", "approve", above, reason="contract 7")

    assert scene.rail.sent == ["a-1"]
    assert (await scene.item(exact)).state == "done"
    assert waiting["outbox_id"] == str(above)
    assert (waiting["amount"], waiting["reason"]) == ("100.01", AWAITS)
    assert approved.json()["decision"] == "approved"
    await scene.run()
    assert scene.rail.sent == ["a-1", "a-2", "a-3"]
    assert (await scene.clients["ann"].get("/outbox/approvals")).json()["waiting"] == []
    (who,) = await scene.audited("outbox_instruction.approved")
    assert who == f"key:{approved.json()['key_id']}"


async def test_an_instruction_in_doubt_that_needs_an_approval_is_listed_until_it_is_approved(
    scene: Scene,
) -> None:
    """It is held as unknown; nobody would look for it among those that wait for an approval."""
    scene.rail.outcomes = [Hold(f"unknown: {AWAITS}")]
    doubtful = await scene.send("a-1", "100")
    await scene.run()
    await scene.limit(approval_above=Decimal(50))
    (waiting,) = (await scene.clients["ann"].get("/outbox/approvals")).json()["waiting"]

    await scene.decide("ann", "approve", doubtful, reason="contract 7")

    assert waiting["outbox_id"] == str(doubtful)
    assert (await scene.clients["ann"].get("/outbox/approvals")).json()["waiting"] == []
    assert (await scene.item(doubtful)).state == "held", "the doubt is not decided"


async def test_a_rejected_instruction_fails_and_blocks_as_any_failed_head(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.send("a-2")
    await scene.run()

    rejected = await scene.decide("ann", "reject", first, reason="unknown payee")
    await scene.run()

    assert rejected.status_code == 200, rejected.text
    assert scene.rail.sent == []
    assert await scene.archive(first) == [("FAILED", "REJECTED")]
    assert (await scene.item(first)).state == "dead"


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_the_producing_key_cannot_decide(scene: Scene, verb: str) -> None:
    producer = await scene.key("both", "produce", "approve")
    first = await scene.send("a-1", "500", created_by=producer.caller)
    await scene.run()

    refused = await scene.decide("both", verb, first)
    await scene.run()

    assert refused.status_code == 403
    assert refused.json()["type"].endswith("approval-denied")
    assert (await scene.item(first)).state == "held"


async def test_a_key_that_the_producer_has_made_cannot_approve(scene: Scene) -> None:
    """Otherwise one person with an admin key is both eyes; also through a key in between."""
    made = await scene.clients["producer"].post(
        "/keys", json={"name": "second", "scopes": ["admin", "approve"]}
    )
    producer_id = made.json()["key"]["created_by"]
    second = f"key:{made.json()['key']['key_id']}"
    third = await scene.key("third", "approve", who=second)
    first = await scene.send("a-1", "500", created_by=f"key:{producer_id}")
    await scene.run()

    refused = await scene.decide("third", "approve", first)
    allowed = await scene.decide("ann", "approve", first)

    assert third.created_by == made.json()["key"]["key_id"]
    assert refused.status_code == 403
    assert refused.json()["type"].endswith("approval-denied")
    assert allowed.status_code == 200


async def test_an_admin_key_without_the_scope_cannot_approve(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.run()

    refused = await scene.decide("ops", "approve", first)

    assert refused.status_code == 403
    assert refused.json()["scope"] == "approve"


async def test_nobody_approves_without_a_key(scene: Scene) -> None:
    """Access to the database is not a second person."""
    first = await scene.send("a-1", "500")

    async with scene.app.pool.acquire() as db:
        with pytest.raises(Forbidden):
            await approve(db, first, archive=make_archive(), who="cli:ann", reason="because")


async def test_a_released_instruction_still_waits_for_its_approval(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.run()

    await scene.decide("ops", "release", first)
    await scene.run()

    assert scene.rail.sent == []
    assert (await scene.item(first)).reason == AWAITS


async def test_an_approval_may_come_before_its_turn(scene: Scene) -> None:
    await scene.send("a-1")
    second = await scene.send("a-2", "500")

    approved = await scene.decide("ann", "approve", second)
    await scene.run()

    assert approved.status_code == 200
    assert scene.rail.sent == ["a-1", "a-2"]


async def test_a_rejection_before_its_turn_fails_it_in_its_turn(scene: Scene) -> None:
    await scene.send("a-1")
    second = await scene.send("a-2", "500")

    await scene.decide("ann", "reject", second)

    assert (await scene.item(second)).state == "parked"
    await scene.run()
    assert scene.rail.sent == ["a-1"]
    assert await scene.archive(second) == [("FAILED", "REJECTED")]


async def test_two_approvers_at_once_make_one_decision(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.run()

    answers = await asyncio.gather(
        scene.decide("ann", "approve", first), scene.decide("ben", "approve", first)
    )
    await scene.run()

    assert sorted(each.status_code for each in answers) == [200, 409]
    assert scene.rail.sent == ["a-1"]
    assert len(await scene.audited("outbox_instruction.approved")) == 1


async def test_approve_and_reject_at_once_have_one_winner(scene: Scene) -> None:
    ids = [await scene.send(f"{name}-1", "500", participant=name) for name in "abcdefgh"]
    await scene.run()

    answers = await asyncio.gather(
        *(scene.decide("ann", "approve", each) for each in ids),
        *(scene.decide("ben", "reject", each) for each in ids),
    )
    await scene.run()

    approved, rejected = answers[: len(ids)], answers[len(ids) :]
    for index, each in enumerate(ids):
        codes = (approved[index].status_code, rejected[index].status_code)
        assert sorted(codes) == [200, 409]
        state = "DISPATCHED" if codes[0] == 200 else "FAILED"
        assert [row[0] for row in await scene.archive(each)] == [state]


async def test_a_repeat_with_the_same_key_is_harmless(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    await scene.run()
    once = await scene.decide("ann", "approve", first)

    again = await scene.decide("ann", "approve", first, reason="again")
    other = await scene.decide("ann", "reject", first)

    assert again.json() == once.json()
    assert other.status_code == 409
    assert other.json()["decision"] == "approved"


async def test_what_needs_no_approval_or_has_ended_is_not_decided(scene: Scene) -> None:
    small, large = await scene.send("a-1", "1"), await scene.send("b-1", "500", participant="b")

    early = await scene.decide("ann", "reject", small)
    await scene.run()
    await scene.decide("ops", "skip", large)
    late = await scene.decide("ann", "approve", large)

    assert early.json()["detail"].endswith("needs no approval")
    assert late.json()["detail"].endswith("has ended")
    assert scene.rail.sent == ["a-1"]


async def test_what_was_sent_before_is_not_rejected(scene: Scene) -> None:
    """It may have been paid, and a failed instruction can be sent again under another key."""
    scene.rail.outcomes = [Hold("unknown: no answer")]
    first = await scene.send("a-1", "50")
    await scene.run()
    await scene.app.pool.execute(
        "INSERT INTO penstock.outbox_attempt (attempt_id, outbox_id, attempt_no, state, "
        "claimed_at, created_at) VALUES (gen_random_uuid(), $1, 1, 'UNKNOWN', now(), now())",
        first,
    )
    await scene.limit(approval_above=Decimal(10))
    await scene.decide("ops", "release", first)
    await scene.run()

    refused = await scene.decide("ann", "reject", first)
    await scene.decide("ann", "approve", first)
    await scene.run()

    assert refused.status_code == 409
    assert refused.json()["type"].endswith("result-unknown")
    assert scene.rail.sent == ["a-1", "a-1"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_decision_during_a_claim_is_applied_when_the_claim_has_ended(
    scene: Scene, verb: str
) -> None:
    """The worker has read that there is no approval, and holds the instruction after it came."""
    first = await scene.send("a-1", "500")
    lease = await claim_head(scene)
    assert (await scene.decide("ann", verb, first)).status_code == 200
    archive = make_archive()

    async with scene.app.pool.acquire() as db:
        assert not await recheck_one(db, archive=archive)
        await settle_held(scene, lease)
        assert (await scene.item(first)).state == "held"
        assert await recheck_one(db, archive=archive)
        assert not await recheck_one(db, archive=archive)

    await scene.run()
    assert scene.rail.sent == (["a-1"] if verb == "approve" else [])
    assert [row[0] for row in await scene.archive(first)] == (
        ["DISPATCHED"] if verb == "approve" else ["FAILED"]
    )


async def test_the_service_looks_at_what_was_noted_and_stops(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    lease = await claim_head(scene)
    await scene.decide("ann", "approve", first)
    await settle_held(scene, lease)
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(Recheck(pool=scene.app.pool, archive=make_archive()).run(stop))
        async with asyncio.timeout(10):
            while (await scene.item(first)).state == "held":
                pass
        stop.set()

    await scene.run()
    assert scene.rail.sent == ["a-1"]


async def test_an_approved_instruction_is_counted_beyond_the_sum_of_the_day(scene: Scene) -> None:
    await scene.limit(approval_above=Decimal(100), day_amount_max=Decimal(150))
    first, second = await scene.send("a-1", "140"), await scene.send("a-2", "20")
    await scene.run()
    await scene.decide("ann", "approve", first)
    await scene.run()
    assert (await scene.item(second)).reason == "awaits approval: over 150 EUR on this day"

    await scene.decide("ben", "approve", second)
    await scene.run()

    assert scene.rail.sent == ["a-1", "a-2"]
    assert await scene.app.pool.fetchval("SELECT amount FROM penstock.outbox_day_total") == 160


async def test_an_approval_does_not_lift_the_highest_amount(scene: Scene) -> None:
    await scene.limit(approval_above=Decimal(100), amount_max=Decimal(1000))
    first = await scene.send("a-1", "5000")
    await scene.decide("ann", "approve", first)

    await scene.run()

    assert await scene.archive(first) == [("FAILED", "OVER_LIMIT")]


async def test_an_unknown_instruction_is_not_found(scene: Scene) -> None:
    missing = "019a9000-0000-7000-8000-000000000000"

    answers = [
        await scene.post(who, f"/outbox/instructions/{missing}/{verb}")
        for who, verb in [("ann", "approve"), ("ann", "reject"), ("ops", "hold"), ("ops", "skip")]
    ]

    assert [each.status_code for each in answers] == [404] * 4


async def test_reject_is_refused_without_a_reason(scene: Scene) -> None:
    first = await scene.send("a-1", "500")
    person = await scene.key("cat", "approve")

    empty = await scene.decide("ann", "reject", first, reason="")

    assert empty.status_code == 400
    async with scene.app.pool.acquire() as db:
        assert (
            await reject(db, first, archive=make_archive(), who=person.caller, reason="no")
        ).reason == "no"


async def claim_head(scene: Scene) -> Lease:
    """Claim what is due, as a worker does."""
    async with scene.app.pool.acquire() as db:
        lane = await read_lane(db, "penstock.outbox")
        lease = await claim(
            db, lane.lane_id, Cursor(), limit=10, worker="test", now=scene.clock.now()
        )
    assert isinstance(lease, Lease)
    return lease


async def settle_held(scene: Scene, lease: Lease) -> None:
    """Settle what was claimed as a worker does that saw no approval."""
    ended = [Ended(claimed, Hold(AWAITS), 1) for claimed in lease.items]
    async with scene.app.pool.acquire() as db, db.transaction():
        lane = await read_lane(db, "penstock.outbox")
        assert await settle(db, lane, lease, ended=ended, closes=True, now=scene.clock.now())
