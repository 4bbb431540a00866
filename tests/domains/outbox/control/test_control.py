"""What holds money back: switches, suspensions, limits, calendars, and what lets it leave again."""

import asyncio
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import Response

from penstock.base.clock import FakeClock, instant
from penstock.base.errors import InvalidInput
from penstock.base.log import get_logger
from penstock.calendar.calendar import Calendar, Hours
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.checks import Control
from penstock.domains.outbox.control.cut_off import next_send_at, put_calendar
from penstock.domains.outbox.control.recheck import recheck_one
from penstock.domains.outbox.errors import InstructionConflict
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.registry import RailRow, put_rail
from penstock.domains.outbox.reconcile.results import sign
from penstock.domains.outbox.verdict import Proceed, Stop
from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.item import Dead, Done, Hold, ItemId, Retry, Snooze
from penstock.kernel.lane import set_lane
from penstock.kernel.operate import release as kernel_release
from tests.domains.outbox.control.control_scene import RAIL_CONFIG, Scene, opened_scene

MONDAY = datetime(2030, 1, 7, 12, tzinfo=UTC)
OFFICE = Calendar(
    time_zone="Europe/Berlin",
    hours=(Hours(days=("mon", "tue", "wed", "thu", "fri"), opens="08:00", closes="18:00"),),
    holidays=("TARGET2",),
    cut_off="15:00",
)


@pytest.fixture
async def scene(dsn: str, clock: FakeClock) -> AsyncGenerator[Scene]:
    """An outbox whose rail is a list."""
    async with opened_scene(dsn, clock) as opened:
        yield opened


# --------------------------------------------------------------------------------- switches


@pytest.mark.covers("E77")
@pytest.mark.parametrize(
    "what",
    [
        {"scope": "all"},
        {"scope": "rail", "name": "sepa"},
        {"scope": "participant", "name": "shop"},
    ],
    ids=lambda what: str(what["scope"]),
)
async def test_what_is_stopped_waits_in_its_place_and_costs_no_attempt(
    scene: Scene, what: dict[str, str]
) -> None:
    """A kill switch must neither lose nor reorder anything, however long it is on."""
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    stopped = await scene.post("ops", "/outbox/switches/stop", **what)

    await scene.run()
    await scene.run_after(seconds=40)

    assert stopped.status_code == 200
    assert scene.rail.sent == []
    assert (await scene.item(first)).state == "scheduled"
    started = await scene.post("ops", "/outbox/switches/start", **what)
    await scene.run_after(seconds=40)
    assert started.status_code == 204
    assert scene.rail.sent == ["a-1", "a-2"]
    assert len(await scene.audited("outbox_switch.stopped")) == 1
    assert len(await scene.audited("outbox_switch.started")) == 1


async def test_a_switch_stops_only_what_it_names(scene: Scene) -> None:
    await scene.send("shop-sepa")
    await scene.send("bank-sepa", participant="bank")
    await scene.send("cafe-wire", participant="cafe", rail="wire")
    await scene.post("ops", "/outbox/switches/stop", scope="participant", name="shop")
    await scene.post("ops", "/outbox/switches/stop", scope="rail", name="wire")

    await scene.run()

    listed = (await scene.clients["ops"].get("/outbox/switches")).json()["switches"]
    assert scene.rail.sent == ["bank-sepa"]
    assert {(each["scope"], each["name"]) for each in listed} == {
        ("participant", "shop"),
        ("rail", "wire"),
    }


async def test_starting_what_is_not_stopped_is_refused(scene: Scene) -> None:
    """A typing error must not look like a start."""
    refused = await scene.post("ops", "/outbox/switches/start", scope="rail", name="speed")

    assert refused.status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "all", "name": "sepa"},
        {"scope": "rail"},
        {"scope": "rail", "name": "*"},
        {"scope": "all", "reason": " "},
    ],
    ids=["all with a name", "rail without", "rail star", "no reason"],
)
async def test_a_switch_without_a_clear_subject_or_reason_is_refused(
    scene: Scene, body: dict[str, str]
) -> None:
    refused = await scene.post("ops", "/outbox/switches/stop", **body)

    assert refused.status_code == 400
    assert (await scene.clients["ops"].get("/outbox/switches")).json() == {"switches": []}


# ------------------------------------------------------------------------------- suspension


async def test_a_resumed_participant_sends_what_was_held_in_its_order(scene: Scene) -> None:
    await scene.send("a-1")
    await scene.send("a-2")
    await scene.send("b-1", participant="bank")
    await scene.post("ops", "/outbox/participants/shop/suspend")

    await scene.run()

    assert scene.rail.sent == ["b-1"]
    resumed = await scene.post("ops", "/outbox/participants/shop/resume")
    await scene.run()
    assert resumed.status_code == 204
    assert scene.rail.sent == ["b-1", "a-1", "a-2"]
    assert len(await scene.audited("outbox_participant.resumed")) == 1
    again = await scene.post("ops", "/outbox/participants/shop/resume")
    assert again.status_code == 404


async def test_a_participant_with_a_slash_is_suspended_and_resumed(scene: Scene) -> None:
    first = await scene.send("a-1", participant="a/b")

    suspended = await scene.post("ops", "/outbox/participants/a%2Fb/suspend")
    await scene.run()
    assert (await scene.item(first)).reason == "suspended"
    resumed = await scene.post("ops", "/outbox/participants/a%2Fb/resume")
    await scene.run()

    assert suspended.json()["participant_id"] == "a/b"
    assert resumed.status_code == 204, resumed.text
    assert scene.rail.sent == ["a-1"]


async def test_a_failed_head_blocks_its_participant_and_no_other(scene: Scene) -> None:
    """The default: the next instruction may depend on the one that failed."""
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.run()
    await scene.send("a-2")
    await scene.send("b-1", participant="bank")

    await scene.run()

    assert scene.rail.sent == ["a-1", "b-1"]
    assert (await scene.archive(first)) == [("FAILED", None)]
    assert (await scene.clients["ops"].get("/outbox/suspensions")).json()["suspensions"] == []


@pytest.mark.parametrize(
    "scope",
    [
        {"scope": "all"},
        {"scope": "rail", "name": "sepa"},
        {"scope": "participant", "name": "shop"},
    ],
    ids=lambda each: str(each["scope"]),
)
async def test_a_failed_head_suspends_its_participant_where_the_policy_says_so(
    scene: Scene, scope: dict[str, str]
) -> None:
    ops = scene.clients["ops"]
    await ops.put("/outbox/failure-policies", json=scope | {"policy": "suspend"})
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.send("a-2")
    await scene.run()

    (suspended,) = (await ops.get("/outbox/suspensions")).json()["suspensions"]
    resumed = await scene.post("ops", "/outbox/participants/shop/resume", reason="known")
    await scene.run()

    assert suspended["outbox_id"] == str(first)
    assert resumed.status_code == 204
    assert scene.rail.sent == ["a-1", "a-2"]
    (gap,) = (await ops.get("/outbox/gaps")).json()["gaps"]
    assert (gap["sequence_id"], gap["reason"]) == (1, "known")
    assert await scene.archive(first) == [("FAILED", None)]


async def test_the_policy_of_a_participant_comes_before_that_for_all(scene: Scene) -> None:
    ops = scene.clients["ops"]
    await ops.put("/outbox/failure-policies", json={"scope": "all", "policy": "suspend"})
    await ops.put(
        "/outbox/failure-policies",
        json={"scope": "participant", "name": "shop", "policy": "block"},
    )
    scene.rail.outcomes = [Dead("refused"), Dead("refused")]
    await scene.send("a-1")
    await scene.send("b-1", participant="bank")

    await scene.run()

    suspended = (await ops.get("/outbox/suspensions")).json()["suspensions"]
    assert [each["participant_id"] for each in suspended] == ["bank"]


# ----------------------------------------------------------------------- hold, release, skip


@pytest.mark.covers("E77")
async def test_a_held_head_keeps_its_followers_until_it_is_released(scene: Scene) -> None:
    first, second = await scene.send("a-1"), await scene.send("a-2")

    held = await scene.decide("ops", "hold", first)
    behind = await scene.decide("ops", "hold", second)
    await scene.run()

    assert held.json()["state"] == "held"
    assert held.json()["reason"] == "held: because"
    assert behind.status_code == 409
    assert scene.rail.sent == []
    assert (await scene.decide("ops", "release", first)).json()["state"] == "ready"
    await scene.run()
    assert scene.rail.sent == ["a-1", "a-2"]


async def test_many_are_held_and_released_after_a_count(scene: Scene) -> None:
    for participant in ("shop", "bank", "cafe"):
        await scene.send(f"{participant}-1", participant=participant)

    counted = await scene.post("ops", "/outbox/instructions/hold", dry_run=True)
    one = await scene.post("ops", "/outbox/instructions/hold", participant_id="cafe", dry_run=True)
    held = await scene.post("ops", "/outbox/instructions/hold")
    await scene.run()
    released = await scene.post(
        "ops", "/outbox/instructions/release", with_reason="held: because", participant_id="bank"
    )
    await scene.run()

    assert counted.json() == {"matched": 3, "changed": 0, "unchanged": 0, "next": None}
    assert one.json()["matched"] == 1
    assert held.json()["changed"] == 3
    assert released.json()["changed"] == 1
    assert scene.rail.sent == ["bank-1"]


async def test_a_skipped_head_leaves_a_gap_that_is_reported(scene: Scene) -> None:
    first, _ = await scene.send("a-1"), await scene.send("a-2")

    skipped = await scene.decide("ops", "skip", first, reason="paid by hand")
    await scene.run()

    (gap,) = (await scene.clients["ops"].get("/outbox/gaps?participant_id=shop")).json()["gaps"]
    assert skipped.json()["state"] == "dead"
    assert scene.rail.sent == ["a-2"]
    assert await scene.archive(first) == [("FAILED", "SKIPPED")]
    assert gap["instruction_id"] == "a-1"
    assert (gap["sequence_id"], gap["reason"]) == (1, "paid by hand")
    assert gap["who"] == (await scene.audited("item.skipped"))[0]


async def test_a_failed_head_that_is_skipped_fails_only_once(scene: Scene) -> None:
    scene.rail.outcomes = [Dead("refused")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()

    await scene.decide("ops", "skip", first)
    await scene.run()

    assert scene.rail.sent == ["a-1", "a-2"]
    assert await scene.archive(first) == [("FAILED", None)]


@pytest.mark.parametrize("state", ["UNKNOWN", "ZOMBIE_REQUEUE"])
async def test_what_may_have_been_paid_is_not_skipped(scene: Scene, state: str) -> None:
    """A failed instruction may be sent again under another key: it would be paid twice."""
    scene.rail.outcomes = [Hold("unknown: no answer")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()
    await scene.app.pool.execute(
        "INSERT INTO penstock.outbox_attempt (attempt_id, outbox_id, attempt_no, state, "
        "claimed_at, created_at) VALUES (gen_random_uuid(), $1, 1, $2, now(), now())",
        first,
        state,
    )

    refused = await scene.decide("ops", "skip", first)
    await scene.run()

    assert refused.status_code == 409
    assert refused.json()["type"].endswith("result-unknown")
    assert (await scene.item(first)).state == "held"
    assert scene.rail.sent == ["a-1"]
    assert (await scene.clients["ops"].get("/outbox/gaps")).json()["gaps"] == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/outbox/switches/stop", {"scope": "rail", "name": "spea", "reason": "x"}, "name"),
        ("/outbox/failure-policies", {"scope": "rail", "name": "spea", "policy": "block"}, "name"),
        (
            "/outbox/limits",
            {"scope": "rail", "name": "spea", "currency": "EUR", "amount_max": "1"},
            "name",
        ),
        ("/outbox/limits", {"scope": "all", "currency": "EUX", "amount_max": "1"}, "currency"),
        (
            "/outbox/calendars",
            {"rail_type": "spea", "calendar": {"timeZone": "UTC", "cutOff": "15:00"}},
            "rail_type",
        ),
    ],
    ids=["switch", "failure policy", "limit", "currency", "calendar"],
)
async def test_a_mistyped_rail_or_currency_is_refused(
    scene: Scene, *, path: str, body: dict[str, object], field: str
) -> None:
    """It would be stored, listed, and stop nothing."""
    method = "POST" if path.endswith("stop") else "PUT"

    refused = await scene.clients["ops"].request(method, path, json=body)

    assert refused.status_code == 400, refused.text
    assert refused.json()["field"] == field


async def test_a_participant_without_instructions_is_stopped_with_a_notice(scene: Scene) -> None:
    await scene.send("a-1")

    unused = await scene.post("ops", "/outbox/switches/stop", scope="participant", name="shpo")
    used = await scene.post("ops", "/outbox/switches/stop", scope="participant", name="shop")

    assert unused.json()["notice"] == "participant 'shpo' has sent no instruction yet"
    assert "notice" not in used.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/outbox/participants/{name}/suspend", {"reason": "because"}),
        (
            "PUT",
            "/outbox/limits",
            {"scope": "participant", "name": "{name}", "currency": "EUR", "amount_max": "1"},
        ),
        (
            "PUT",
            "/outbox/failure-policies",
            {"scope": "participant", "name": "{name}", "policy": "suspend"},
        ),
    ],
    ids=["suspension", "limit", "failure policy"],
)
async def test_whatever_is_set_for_a_participant_without_instructions_has_a_notice(
    scene: Scene, *, method: str, path: str, body: dict[str, str]
) -> None:
    """A mistyped participant would be listed, and hold nothing back."""
    await scene.send("a-1")

    unused, used = [
        await scene.clients["ops"].request(
            method,
            path.format(name=name),
            json={field: value.format(name=name) for field, value in body.items()},
        )
        for name in ("shpo", "shop")
    ]

    assert unused.status_code == used.status_code == 200, unused.text
    assert unused.json()["notice"] == "participant 'shpo' has sent no instruction yet"
    assert "notice" not in used.json()


async def report_paid(scene: Scene, outbox_id: UUID) -> None:
    """Have the report stored and archived, as it is for an instruction that has failed."""
    async with scene.app.pool.acquire() as db, db.transaction():
        await db.execute(
            "INSERT INTO penstock.outbox_result (outbox_id, status, occurred_at, received_at,"
            " due_at, applied_at) VALUES ($1, 'paid', now(), now(), now(), now())",
            outbox_id,
        )
        await Archive(log=get_logger()).write(
            db, outbox_id, "DISPATCHED", who="test", error_code="AFTER_FAILURE"
        )


async def test_an_instruction_that_was_paid_after_it_failed_is_released_and_nothing_else(
    scene: Scene,
) -> None:
    """Skip sent the operator to resolve, which refused it as well: neither named the way out."""
    scene.rail.outcomes = [Dead("refused")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()
    await report_paid(scene, first)

    skipped = await scene.decide("ops", "skip", first)
    resolved = await scene.decide("ops", "resolve", first, resolution="failed")
    released = await scene.decide("ops", "release", first)
    skipped_then = await scene.decide("ops", "skip", first)

    assert (skipped.status_code, resolved.status_code, released.status_code) == (409, 409, 200)
    assert "penstock outbox release" in skipped.json()["detail"]
    assert "penstock outbox release" in resolved.json()["detail"]
    assert skipped_then.status_code == 409, "it is paid, also after its release"


async def test_an_instruction_that_was_paid_after_all_is_not_paid_under_another_key(
    scene: Scene,
) -> None:
    """Its producer saw that it had failed; the other key is rejected before it is sent."""
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.run()
    second = await scene.send("a-1", participant="shop-2", key="k-2")

    reported = await report(scene, first, status="paid")
    await scene.run()
    released = await scene.decide("ops", "release", first)

    assert reported.json()["outcome"] == "applied"
    assert scene.rail.sent == ["a-1"], "only the first was sent"
    assert await scene.archive(second) == [("FAILED", "REJECTED")]
    assert (await scene.item(second)).reason == (
        "rejected by penstock.results: the instruction was paid under another key"
    )
    assert released.status_code == 200, "it ends as dispatched"
    with pytest.raises(InstructionConflict, match="under the key 'k-1'"):
        await scene.send("a-1", key="k-3")


async def test_an_instruction_that_awaits_approval_is_rejected_once_another_key_was_paid(
    scene: Scene,
) -> None:
    """Nobody has to decide about it any more."""
    await scene.limit(approval_above=Decimal(1))
    await scene.key("bob", "approve")
    await scene.decide("bob", "approve", first := await scene.send("a-1"))
    scene.rail.outcomes = [Dead("refused")]
    await scene.run()
    second = await scene.send("a-1", participant="shop-2", key="k-2")
    await scene.run()

    await report(scene, first, status="paid")
    async with scene.app.pool.acquire() as db:
        while await recheck_one(db, archive=Archive(log=get_logger())):
            pass

    assert await scene.archive(second) == [("FAILED", "REJECTED")]
    assert await scene.audited("outbox_instruction.rejected") == ["penstock.results"]


async def test_the_last_of_several_keys_is_released_after_it_failed(scene: Scene) -> None:
    scene.rail.outcomes = [Dead("refused"), Dead("refused")]
    await scene.send("a-1", participant="shop-1")
    await scene.run()
    last = await scene.send("a-1", participant="shop-2", key="k-2")
    await scene.run()

    released = await scene.decide("ops", "release", last)

    assert released.status_code == 200, released.text


async def report(scene: Scene, outbox_id: UUID, *, status: str) -> Response:
    """Report the result of an instruction as its rail does, signed."""
    secret = "a secret of the rail"
    async with scene.app.pool.acquire() as db:
        row = RailRow(
            rail_type="sepa", adapter="http_json", config=RAIL_CONFIG, code_set="iso20022"
        )
        await put_rail(db, row, vault=scene.app.resources.vault, who="test", result_secret=secret)
    about = {"rail_type": "sepa", "amount": "10", "currency": "EUR", "reference": "r-1"}
    body = json.dumps({**about, "outbox_id": str(outbox_id), "status": status}).encode()
    signature = sign(secret, body, at=int(instant(scene.app.resources.clock).timestamp()))
    return await scene.clients["ops"].post(
        "/outbox/results",
        content=body,
        headers={"Content-Type": "application/json", "Penstock-Signature": signature},
    )


async def test_a_participant_resumes_although_what_suspended_it_was_paid_after_all(
    scene: Scene,
) -> None:
    await scene.clients["ops"].put(
        "/outbox/failure-policies", json={"scope": "all", "policy": "suspend"}
    )
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.run()
    await report_paid(scene, first)

    resumed = await scene.post("ops", "/outbox/participants/shop/resume", reason="known")

    assert resumed.status_code == 204
    assert (await scene.item(first)).state == "ready"
    assert (await scene.clients["ops"].get("/outbox/gaps")).json()["gaps"] == []


@pytest.mark.parametrize("is_claimed", [False, True], ids=["ready", "held again"])
async def test_a_resumed_participant_sends_a_failed_head_that_was_released(
    scene: Scene, *, is_claimed: bool
) -> None:
    """Resume passes over what has failed; this one an operator has just decided to send."""
    await scene.clients["ops"].put(
        "/outbox/failure-policies", json={"scope": "all", "policy": "suspend"}
    )
    scene.rail.outcomes = [Dead("refused")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()
    await scene.decide("ops", "release", first)
    if is_claimed:
        await scene.run()
        assert (await scene.item(first)).reason == "suspended"

    resumed = await scene.post("ops", "/outbox/participants/shop/resume", reason="known")
    await scene.run()

    assert resumed.status_code == 204
    assert scene.rail.sent == ["a-1", "a-1", "a-2"]
    assert (await scene.clients["ops"].get("/outbox/gaps")).json()["gaps"] == []


@pytest.mark.covers("E77")
async def test_a_failed_head_is_tried_again_in_its_place(scene: Scene) -> None:
    scene.rail.outcomes = [Dead("refused")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()

    await scene.decide("ops", "release", first)

    assert (await scene.archive(first))[-1] == ("ZOMBIE_REQUEUE", "RELEASED")
    await scene.run()
    assert scene.rail.sent == ["a-1", "a-1", "a-2"]


async def test_a_failed_instruction_that_was_sent_again_is_not_released(scene: Scene) -> None:
    """Both would be paid."""
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.run()
    await scene.send("a-1", key="k-2")

    refused = await scene.decide("ops", "release", first)

    assert refused.status_code == 409
    assert refused.json()["detail"].endswith("was sent again under another key")


async def test_a_released_instruction_is_not_sent_again_under_another_key(scene: Scene) -> None:
    scene.rail.outcomes = [Dead("refused")]
    first = await scene.send("a-1")
    await scene.run()
    await scene.decide("ops", "release", first)

    with pytest.raises(InstructionConflict):
        await scene.send("a-1", key="k-2")


async def test_a_release_and_another_key_at_once_have_one_winner(scene: Scene) -> None:
    """A failed instruction is paid once: in its place, or under another key."""
    names = [f"p{number}" for number in range(8)]
    scene.rail.outcomes = [Dead("refused") for _ in names]
    ids = [await scene.send(name, participant=name) for name in names]
    await scene.run()

    released, sent = await asyncio.gather(
        asyncio.gather(*(scene.decide("ops", "release", each) for each in ids)),
        asyncio.gather(
            *(scene.send(name, participant=name, key="k-2") for name in names),
            return_exceptions=True,
        ),
    )

    for answer, other in zip(released, sent, strict=True):
        assert (answer.status_code == 200) == isinstance(other, InstructionConflict)


async def test_a_skipped_instruction_is_not_tried_again(scene: Scene) -> None:
    """Later ones have left: it would break the order."""
    first = await scene.send("a-1")
    await scene.decide("ops", "skip", first)

    refused = await scene.decide("ops", "release", first)

    assert refused.status_code == 409
    assert refused.json()["type"].endswith("decision-refused")


async def test_a_skipped_instruction_that_is_reported_as_paid_stays_failed(scene: Scene) -> None:
    """The runbook sent the operator to release, which refused it and did not say what to do."""
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    scene.rail.outcomes = [Snooze(timedelta(hours=1))]
    await scene.run()
    await scene.decide("ops", "skip", first)
    await report_paid(scene, first)

    refused = await scene.decide("ops", "release", first)
    shown = await scene.clients["ops"].get(f"/outbox/instructions/{first}")
    listed = await scene.clients["ops"].get("/outbox/instructions")

    assert refused.status_code == 409
    assert "nothing is to be done" in refused.json()["detail"]
    story = shown.json()
    assert story["instruction"]["state"] == "FAILED"
    assert story["instruction"]["next_attempt_at"] is None
    assert story["attempts"][-1]["error_code"] == "AFTER_FAILURE"
    assert [each["next_attempt_at"] for each in listed.json()["instructions"]][-1] is None


async def test_a_release_that_waits_while_it_is_skipped_does_not_break_the_order(
    scene: Scene,
) -> None:
    """The release waits for a producer; what it has read before may be wrong afterwards."""
    scene.rail.outcomes = [Dead("refused")]
    first, _ = await scene.send("a-1"), await scene.send("a-2")
    await scene.run()

    async with (
        asyncio.timeout(30),
        scene.app.pool.acquire() as producer,
        asyncio.TaskGroup() as group,
        producer.transaction(),
    ):
        await producer.execute(
            "SELECT FROM penstock.outbox_idempotency WHERE instruction_id = 'a-1' FOR UPDATE"
        )
        released = group.create_task(scene.decide("ops", "release", first))
        while await count_waiting(scene) < 1:
            pass
        skipped = group.create_task(scene.decide("ops", "skip", first))
        while not skipped.done() and await count_waiting(scene) < 2:
            pass
    await scene.run()

    assert released.result().status_code in {200, 409}
    assert skipped.result().status_code in {200, 409}
    assert scene.rail.sent in (["a-1", "a-2"], ["a-1", "a-1", "a-2"])


async def count_waiting(scene: Scene) -> int:
    """Return how many sessions of this database wait for a lock."""
    return await scene.app.pool.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )


async def test_the_kernels_own_verbs_are_refused(scene: Scene) -> None:
    first = await scene.send("a-1")
    item = await scene.item(first)

    async with scene.app.pool.acquire() as db:
        with pytest.raises(LaneIsOwned):
            await kernel_release(db, ItemId(item.id), who="ops", reason="because")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease", timedelta(seconds=101)),
        ("ordering", "none"),
        ("on_lost", "retry"),
        ("on_dead_head", "skip"),
    ],
    ids=str,
)
async def test_what_the_guarantees_need_is_not_changed_in_the_lane(
    scene: Scene, field: str, value: Any
) -> None:
    """A longer lease heals later than promised, and the others pay twice or out of order."""
    async with scene.app.pool.acquire() as db:
        with pytest.raises(LaneIsOwned, match=f"a change of {field}: "):
            await set_lane(db, LANE, who="ops", **{field: value})


# ----------------------------------------------------------------------------------- limits


async def test_an_amount_over_the_limit_fails_without_a_call(scene: Scene) -> None:
    await scene.limit(amount_max=Decimal(100))
    exact, over = await scene.send("a-1", "100"), await scene.send("b-1", "100.01", participant="b")

    await scene.run()

    assert scene.rail.sent == ["a-1"]
    assert await scene.archive(exact) == [("DISPATCHED", None)]
    assert await scene.archive(over) == [("FAILED", "OVER_LIMIT")]


async def test_an_amount_over_the_limit_fails_again_after_a_release(scene: Scene) -> None:
    """No call was made: held for an approval, one would let it leave beyond the highest amount."""
    await scene.limit(amount_max=Decimal(100), approval_above=Decimal(10))
    over = await scene.send("a-1", "200")
    await scene.run()
    released = await scene.decide("ops", "release", over)

    await scene.run()

    assert released.status_code == 200, released.text
    assert (await scene.item(over)).state == "dead"
    assert [code for _, code in await scene.archive(over)] == [
        "OVER_LIMIT", "RELEASED", "OVER_LIMIT",
    ]  # fmt: skip
    assert scene.rail.sent == []


async def test_the_limit_of_a_participant_comes_before_that_of_a_rail_and_for_all(
    scene: Scene,
) -> None:
    await scene.limit(amount_max=Decimal(1))
    await scene.limit(scope="rail", name="wire", amount_max=Decimal(10))
    await scene.limit(scope="participant", name="shop", amount_max=Decimal(100))

    await scene.send("all", "2", participant="bank")
    await scene.send("rail", "9", participant="cafe", rail="wire")
    await scene.send("own", "99", rail="wire")
    await scene.send("other currency", "1000", participant="dock", currency="USD")
    await scene.run()

    assert sorted(scene.rail.sent) == ["other currency", "own", "rail"]


async def test_the_sum_of_a_day_is_limited_and_the_next_day_starts_anew(scene: Scene) -> None:
    await scene.limit(day_amount_max=Decimal(100))
    await scene.send("a-1", "60")
    await scene.send("a-2", "40")
    third = await scene.send("a-3", "0.01")

    await scene.run()

    assert scene.rail.sent == ["a-1", "a-2"]
    item = await scene.item(third)
    assert (item.state, item.reason) == ("held", "awaits approval: over 100 EUR on this day")
    await scene.decide("ops", "release", third)
    await scene.run_after(days=1)
    assert scene.rail.sent == ["a-1", "a-2", "a-3"]


async def test_an_instruction_is_counted_once_however_often_it_is_tried(scene: Scene) -> None:
    await scene.limit(day_amount_max=Decimal(100))
    scene.rail.outcomes = [Snooze(timedelta(seconds=1)), Snooze(timedelta(seconds=1)), Done()]
    await scene.send("a-1", "60")
    await scene.run()
    await scene.run_after(seconds=2)
    await scene.run_after(seconds=2)
    await scene.send("a-2", "40")

    await scene.run()

    assert scene.rail.sent == ["a-1", "a-1", "a-1", "a-2"]


async def test_the_sum_of_a_day_is_exact_under_concurrency(scene: Scene) -> None:
    """Two workers that read the same sum would let more leave than the limit."""
    await scene.limit(day_amount_max=Decimal(100))
    control = Control(clock=scene.clock)

    async def load(_: int) -> bool:
        async with scene.app.pool.acquire() as db:
            (verdict,) = await control.load(db, [an_instruction(amount=Decimal(7))])
        return isinstance(verdict, Proceed)

    passed = await asyncio.gather(*map(load, range(40)))

    total = await scene.app.pool.fetchval("SELECT amount FROM penstock.outbox_day_total")
    assert sum(passed) == 14
    assert total == 98


async def test_what_was_stopped_or_closed_is_not_counted(scene: Scene) -> None:
    await scene.limit(day_amount_max=Decimal(100))
    await scene.post("ops", "/outbox/switches/stop", scope="all")
    await scene.send("a-1")

    await scene.run()

    assert await scene.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_charge") == 0


async def test_a_limit_that_was_lowered_does_not_fail_what_was_sent_before(scene: Scene) -> None:
    """It may have been paid: as failed, it could be sent again under another key."""
    first = await scene.send("a-1", "100")
    scene.rail.outcomes = [Hold("unknown: no answer")]
    await scene.run()
    await scene.limit(amount_max=Decimal(10))
    await scene.decide("ops", "release", first)

    await scene.run()

    assert (await scene.item(first)).reason == "awaits approval: over the limit of 10 EUR"
    assert await scene.archive(first) == []


async def test_limits_are_set_listed_and_removed_over_rest(scene: Scene) -> None:
    ops = scene.clients["ops"]
    given = {"scope": "participant", "name": "shop", "currency": "EUR", "approval_above": "99.50"}

    made = await ops.put("/outbox/limits", json=given)
    listed = (await ops.get("/outbox/limits")).json()["limits"]
    which = {"scope": "participant", "name": "shop"}
    removed = await ops.delete("/outbox/limits/EUR", params=which)
    again = await ops.delete("/outbox/limits/EUR", params=which)

    assert made.status_code == 200, made.text
    assert listed == [given | {"amount_max": None, "day_amount_max": None}]
    assert (await ops.get("/outbox/limits")).json() == {"limits": []}
    assert removed.status_code == 204, removed.text
    assert again.status_code == 404
    assert again.json()["type"].endswith("unknown-outbox-limit")
    assert len(await scene.audited("outbox_limit.changed")) == 1
    assert len(await scene.audited("outbox_limit.removed")) == 1


async def test_limits_without_a_number_are_refused_and_not_removed(scene: Scene) -> None:
    """As those of payments: a field that a client forgot must not lift the limit."""
    ops = scene.clients["ops"]
    await scene.limit(amount_max=Decimal(100))

    refused = await ops.put("/outbox/limits", json={"scope": "all", "currency": "EUR"})

    assert refused.status_code == 400
    assert refused.json()["field"] == "amount_max"
    assert "DELETE" in refused.json()["detail"]
    assert len((await ops.get("/outbox/limits")).json()["limits"]) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount_max": 99.5}, "amount_max"),
        ({"amount_max": "-1"}, "amount_max"),
        ({"currency": "euro", "amount_max": "1"}, "currency"),
        ({"scope": "rail", "name": "sepa", "day_amount_max": "1"}, "day_amount_max"),
        ({"scope": "participant", "amount_max": "1"}, "name"),
        ({"amount_max": "100.000"}, "amount_max"),
        ({"currency": "JPY", "approval_above": "100.5"}, "approval_above"),
        ({"amount_max": "100", "approval_above": "100"}, "approval_above"),
    ],
    ids=[
        "float",
        "negative",
        "currency",
        "day of a rail",
        "no name",
        "a separator of thousands",
        "decimals",
        "an approval that never comes",
    ],
)
async def test_a_wrong_limit_is_refused_by_its_field(
    scene: Scene, change: dict[str, object], field: str
) -> None:
    given = {"scope": "all", "currency": "EUR"} | change

    refused = await scene.clients["ops"].put("/outbox/limits", json=given)

    assert refused.status_code == 400
    assert refused.json()["field"] == field


# -------------------------------------------------------------------------------- calendars


@pytest.mark.parametrize(
    ("now", "sends_at"),
    [
        (MONDAY, MONDAY),
        (datetime(2030, 1, 7, 6, tzinfo=UTC), datetime(2030, 1, 7, 7, tzinfo=UTC)),
        (datetime(2030, 1, 7, 14, tzinfo=UTC), datetime(2030, 1, 8, 7, tzinfo=UTC)),
        (datetime(2030, 1, 11, 15, tzinfo=UTC), datetime(2030, 1, 14, 7, tzinfo=UTC)),
        (datetime(2030, 1, 1, 12, tzinfo=UTC), datetime(2030, 1, 2, 7, tzinfo=UTC)),
    ],
    ids=["open", "before opening", "at the cut-off", "weekend", "bank holiday"],
)
def test_a_rail_sends_when_it_is_open_and_before_the_cut_off(
    now: datetime, sends_at: datetime
) -> None:
    assert next_send_at(OFFICE, now) == sends_at


@pytest.mark.covers("E77")
async def test_an_instruction_waits_for_its_rail_to_open(scene: Scene) -> None:
    """The clock shows noon of New Year, a bank holiday; the other rail has no calendar."""
    async with scene.app.pool.acquire() as db:
        await put_calendar(db, "sepa", OFFICE, who="test", now=scene.clock.now())
    first = await scene.send("a-1")
    await scene.send("a-2")
    await scene.send("b-1", participant="bank", rail="wire")

    await scene.run()

    assert scene.rail.sent == ["b-1"]
    item = await scene.item(first)
    assert item.due_at == datetime(2030, 1, 2, 7, tzinfo=UTC)
    await scene.run_after(hours=18)
    assert scene.rail.sent == ["b-1"]
    await scene.run_after(hours=1)
    assert scene.rail.sent == ["b-1", "a-1", "a-2"]


@pytest.mark.parametrize("change", ["remove", "open now", "open later"])
async def test_a_changed_calendar_applies_to_what_waits_for_the_rail(
    scene: Scene, change: str
) -> None:
    """Otherwise it waits for an opening that is gone, and no verb lets it leave."""
    ops = scene.clients["ops"]
    await close_until_tomorrow(scene)
    first = await scene.send("a-1")
    await scene.run()

    if change == "remove":
        changed = await ops.delete("/outbox/calendars/sepa")
    else:
        opens = "00:00" if change == "open now" else "13:00"
        hours = [{"days": ["mon", "tue"], "opens": opens, "closes": "23:00"}]
        given = {"rail_type": "sepa", "calendar": {"timeZone": "UTC", "hours": hours}}
        changed = await ops.put("/outbox/calendars", json=given)
    await scene.run()

    assert changed.is_success, changed.text
    if change == "open later":
        assert (await scene.item(first)).due_at == datetime(2030, 1, 1, 13, tzinfo=UTC)
        await scene.run_after(hours=1)
    assert scene.rail.sent == ["a-1"]


async def test_a_changed_calendar_applies_to_what_an_operator_holds(scene: Scene) -> None:
    await close_until_tomorrow(scene)
    first = await scene.send("a-1")
    await scene.run()
    await scene.decide("ops", "hold", first)

    await scene.clients["ops"].delete("/outbox/calendars/sepa")
    await scene.run()
    assert scene.rail.sent == []
    await scene.decide("ops", "release", first)
    await scene.run()

    assert scene.rail.sent == ["a-1"]


async def test_a_changed_calendar_leaves_what_waits_for_another_reason(scene: Scene) -> None:
    """A retry keeps its delay, and the calendar of another rail is not changed."""
    busy = timedelta(hours=3)
    scene.rail.outcomes = [Retry("busy", after=busy), Snooze(busy, "rail sepa is full")]
    retried, snoozed = await scene.send("a-1"), await scene.send("b-1", participant="b")
    await scene.run()
    await close_until_tomorrow(scene, "sepa", "wire")
    other = await scene.send("c-1", participant="c", rail="wire")
    await scene.run()
    before = [(await scene.item(each)).due_at for each in (retried, snoozed, other)]

    await scene.clients["ops"].delete("/outbox/calendars/sepa")

    assert [(await scene.item(each)).due_at for each in (retried, snoozed, other)] == before
    assert before[2] == datetime(2030, 1, 2, 7, tzinfo=UTC)


async def close_until_tomorrow(scene: Scene, *rails: str) -> None:
    """Set calendars by which rails are closed on the day of the clock, New Year."""
    async with scene.app.pool.acquire() as db:
        for each in rails or ("sepa",):
            await put_calendar(db, each, OFFICE, who="test", now=scene.clock.now())


async def test_calendars_are_set_listed_and_removed_over_rest(scene: Scene) -> None:
    ops = scene.clients["ops"]
    given = {"rail_type": "sepa", "calendar": {"timeZone": "Europe/Berlin", "cutOff": "15:00"}}

    made = await ops.put("/outbox/calendars", json=given)
    listed = (await ops.get("/outbox/calendars")).json()["calendars"]
    removed = await ops.delete("/outbox/calendars/sepa")

    assert made.status_code == 200, made.text
    assert listed[0]["rail_type"] == "sepa"
    assert listed[0]["calendar"]["cutOff"] == "15:00"
    assert removed.status_code == 204
    assert (await ops.delete("/outbox/calendars/sepa")).status_code == 404


async def test_a_cut_off_that_rejects_is_refused(scene: Scene) -> None:
    """An instruction that waited in its turn must not fail because it became late."""
    calendar = Calendar(time_zone="UTC", cut_off="15:00", cut_off_policy="reject")

    async with scene.app.pool.acquire() as db:
        with pytest.raises(InvalidInput):
            await put_calendar(db, "sepa", calendar, who="test", now=MONDAY)


async def test_nothing_is_asked_about_no_instructions(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db:
        assert await Control(clock=scene.clock).load(db, []) == []


async def test_verdicts_are_in_the_order_of_the_instructions(scene: Scene) -> None:
    await scene.post("ops", "/outbox/switches/stop", scope="participant", name="b")
    asked = [an_instruction(participant_id=name) for name in ("c", "b", "a")]

    async with scene.app.pool.acquire() as db:
        verdicts = await Control(clock=scene.clock).load(db, asked)

    assert [type(each) for each in verdicts] == [Proceed, Stop, Proceed]


def an_instruction(
    *, participant_id: str = "shop", amount: Decimal = Decimal(10), outbox_id: UUID | None = None
) -> Instruction:
    return Instruction(
        outbox_id=outbox_id or uuid4(),
        item_id=0,
        instruction_id="i",
        participant_id=participant_id,
        sequence_id=1,
        idempotency_key="k",
        rail_type="sepa",
        payload={},
        amount=amount,
        currency="EUR",
        created_at=MONDAY,
    )
