"""Decisions of people about instructions that may have been paid."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import Response
from structlog.testing import capture_logs

from penstock.domains.outbox.ending import RailEnding
from penstock.domains.outbox.reconcile.resolve import Decision, UnknownFilter, list_unknown
from penstock.domains.outbox.verdict import Stop
from penstock.kernel.item import Done, Hold
from tests.domains.outbox.sending.ledger import Ledger, loaded
from tests.domains.outbox.sending.scene import Outbox
from tests.domains.outbox.sending.test_reconcile import settle_late

OTHER = {"participant": "p2"}


async def doubtful(outbox: Outbox, ledger: Ledger, name: str = "i1", **more: str) -> UUID:
    """Return an instruction that was paid without a reply, on a rail that answers no queries."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["lose"]
    outbox_id = await outbox.send(name, **more)
    await outbox.run()
    assert await outbox.item_state(outbox_id) == "held"
    outbox.clock.advance(timedelta(seconds=1))
    return outbox_id


async def resolve(outbox: Outbox, outbox_id: UUID, **body: Any) -> Response:
    """Decide by hand about one instruction."""
    return await outbox.client.post(f"/outbox/instructions/{outbox_id}/resolve", json=body)


async def audited(outbox: Outbox) -> list[tuple[str, str]]:
    rows = await outbox.app.pool.fetch(
        "SELECT who, action FROM penstock.audit WHERE action LIKE 'item.%' ORDER BY audit_id"
    )
    return [(row["who"], row["action"]) for row in rows]


async def test_a_person_says_that_it_is_paid(outbox: Outbox, ledger: Ledger) -> None:
    outbox_id = await doubtful(outbox, ledger)
    follower = await outbox.send("i2")

    response = await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve",
        json={"resolution": "paid", "reason": "statement of 31 Jan", "reference": "bank-77"},
    )
    await outbox.run()

    assert response.status_code == 200, response.text
    rows = await outbox.rows(outbox_id)
    assert [row["state"] for row in rows] == ["UNKNOWN", "DISPATCHED"]
    assert rows[1]["rail_reference"] == "bank-77"
    assert rows[1]["error_message"] == "statement of 31 Jan"
    ((who, action),) = await audited(outbox)
    assert (rows[1]["who"], action) == (who, "item.resolved")
    assert await outbox.states(follower) == ["DISPATCHED"]


@pytest.mark.parametrize(
    ("is_asynchronous", "states"),
    [(True, ["UNKNOWN", "DISPATCHED", "SETTLED"]), (False, ["UNKNOWN", "DISPATCHED"])],
    ids=["settles later", "settles at once"],
)
async def test_a_rail_that_settles_later_is_asked_about_what_a_person_says_is_paid(
    outbox: Outbox, ledger: Ledger, *, is_asynchronous: bool, states: list[str]
) -> None:
    """Its settlement or return would be missed."""
    outbox_id = await doubtful(outbox, ledger)
    await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve",
        json={"resolution": "paid", "reason": "statement of 31 Jan", "reference": "bank-77"},
    )
    outbox.rails.rail = loaded(
        ledger.port, can_query=is_asynchronous, is_asynchronous=is_asynchronous
    )

    await outbox.reconcile(minutes=1)

    assert await outbox.states(outbox_id) == states
    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.outbox_lookup") == 0


async def test_a_person_says_that_it_is_not_paid_and_will_not_be(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox_id = await doubtful(outbox, ledger)

    await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve", json={"resolution": "failed", "reason": "x"}
    )

    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED"]
    assert (await outbox.rows(outbox_id))[1]["error_code"] == "NOT_PAID"
    assert await outbox.item_state(outbox_id) == "dead"


async def test_a_person_has_it_sent_again(outbox: Outbox, ledger: Ledger) -> None:
    """The word of a person clears the doubt, also for a rail that answers no queries."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["drop"]
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve", json={"resolution": "again", "reason": "x"}
    )
    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]
    assert ledger.bookings == ["i1"]


async def test_the_rail_is_asked_before_a_person_has_it_sent_again(
    outbox: Outbox, ledger: Ledger
) -> None:
    """A person may be wrong."""
    ledger.orders += ["lose"]
    outbox_id = await outbox.send()
    await outbox.run()

    await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve", json={"resolution": "again", "reason": "x"}
    )
    await outbox.run()

    assert await outbox.states(outbox_id) == ["UNKNOWN", "ZOMBIE_REQUEUE", "DISPATCHED"]
    assert ledger.bookings == ["i1"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"resolution": "paid", "reason": "x"}, 400),
        ({"resolution": "again", "reason": "x", "reference": "r"}, 400),
        ({"resolution": "failed"}, 400),
        ({"resolution": "perhaps", "reason": "x"}, 400),
    ],
    ids=["no reference", "needless reference", "no reason", "no resolution"],
)
async def test_half_a_decision_is_refused(
    outbox: Outbox, ledger: Ledger, *, body: dict[str, str], status: int
) -> None:
    outbox_id = await doubtful(outbox, ledger)

    response = await outbox.client.post(f"/outbox/instructions/{outbox_id}/resolve", json=body)

    assert response.status_code == status
    assert await outbox.states(outbox_id) == ["UNKNOWN"]


async def test_only_an_instruction_in_doubt_can_be_resolved(outbox: Outbox, ledger: Ledger) -> None:
    """One that awaits an approval must not get past it this way."""
    outbox.control.verdict = Stop(Hold("awaits approval"), "X")
    outbox_id = await outbox.send()
    await outbox.run()
    body = {"resolution": "again", "reason": "x"}

    held = await outbox.client.post(f"/outbox/instructions/{outbox_id}/resolve", json=body)
    unknown = await outbox.client.post(f"/outbox/instructions/{uuid4()}/resolve", json=body)

    assert (held.status_code, unknown.status_code) == (409, 404)
    assert ledger.calls == []


async def resolve_many(outbox: Outbox, **more: Any) -> Response:
    body = {"resolution": "failed", "reason": "the bank knows none of them", **more}
    return await outbox.client.post("/outbox/instructions/resolve", json=body)


async def test_many_are_counted_first_and_then_decided(outbox: Outbox, ledger: Ledger) -> None:
    ids = [
        await doubtful(outbox, ledger, f"i{number}", participant=f"p{number}")
        for number in range(3)
    ]

    counted = (await resolve_many(outbox, dry_run=True)).json()
    one = await resolve_many(outbox, participant_id="p1", before=counted["before"])
    rest = await resolve_many(outbox, before=counted["before"])
    paid = await resolve_many(outbox, resolution="paid", before=counted["before"])

    assert counted["matched"] == 3
    assert one.json() == {
        "matched": 1, "changed": 1, "unchanged": 0, "next": None, "before": counted["before"],
    }  # fmt: skip
    assert rest.json()["changed"] == 2
    assert paid.status_code == 400
    assert "each paid instruction has a reference of its own" in paid.json()["detail"]
    for each in ids:
        assert await outbox.states(each) == ["UNKNOWN", "FAILED"]


async def test_what_comes_to_doubt_after_the_count_is_left_alone(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Nobody has asked the bank about it: as failed it could be paid twice."""
    counted = await doubtful(outbox, ledger)
    before = (await resolve_many(outbox, dry_run=True)).json()["before"]
    later = await doubtful(outbox, ledger, "i2", participant="p2")

    decided = await resolve_many(outbox, before=before)
    undated = await resolve_many(outbox)

    assert decided.json()["changed"] == 1
    assert await outbox.states(counted) == ["UNKNOWN", "FAILED"]
    assert undated.status_code == 400
    assert "before" in undated.text
    assert await outbox.states(later) == ["UNKNOWN"]


async def test_a_person_decides_about_what_was_listed(outbox: Outbox, ledger: Ledger) -> None:
    """The command lists, asks, and decides: what comes to doubt meanwhile is left alone."""
    listed, again = await doubtful(outbox, ledger), await doubtful(outbox, ledger, "i2", **OTHER)
    decision = Decision(resolution="again", who="ann", reason="x")
    resolver = outbox.reconciler.resolver
    async with outbox.app.pool.acquire() as db:
        doubts = await list_unknown(db, UnknownFilter())
        await resolver.resolve(db, again, decision)
    ledger.orders += ["lose"]
    await outbox.run()
    later = await doubtful(outbox, ledger, "i3", participant="p3")

    async with outbox.app.pool.acquire() as db:
        done = await resolver.resolve_listed(db, doubts, decision)

    assert (done.changed, done.unchanged) == (1, 1)
    assert await outbox.item_state(listed) == "ready"
    assert await outbox.item_state(again) == "held", "its doubt is about another attempt"
    assert await outbox.item_state(later) == "held"


async def test_a_lost_attempt_is_archived_before_the_decision_about_it(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    await outbox.lose()
    await outbox.sweep(seconds=65)

    await outbox.client.post(
        f"/outbox/instructions/{outbox_id}/resolve", json={"resolution": "failed", "reason": "x"}
    )

    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED"]


async def late_payment(outbox: Outbox, token: int) -> None:
    """Settle as the worker that has paid, after its lease."""
    ending = RailEnding(state="DISPATCHED", called=True, rail_code="PAID", rail_reference="r9")
    await settle_late(outbox, token, Done(ending))


async def test_a_payment_that_a_worker_reports_after_a_person_has_failed_it_is_seen(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The call took longer than its lease. Under another key it would have been paid twice."""
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    decision = Decision(resolution="failed", who="ann", reason="not in the bank's list")
    async with outbox.app.pool.acquire() as db:
        await outbox.reconciler.resolver.resolve(db, outbox_id, decision, now=outbox.clock.now())
    has_failed = "SELECT penstock.outbox_has_failed($1)"
    assert await outbox.app.pool.fetchval(has_failed, outbox_id)

    await late_payment(outbox, token)
    may_be_repeated = await outbox.app.pool.fetchval(has_failed, outbox_id)
    with capture_logs() as lines:
        await outbox.reconcile(seconds=1)
        await outbox.reconcile(seconds=1)

    assert not may_be_repeated
    assert await outbox.states(outbox_id) == ["UNKNOWN", "FAILED", "DISPATCHED"]
    assert (await outbox.rows(outbox_id))[-1]["rail_reference"] == "r9"
    contradicted = [line for line in lines if line["event"] == "instruction.failure_contradicted"]
    assert len(contradicted) == 1


@pytest.mark.parametrize("resolution", ["failed", "again"])
async def test_what_a_worker_has_paid_cannot_be_resolved_as_not_paid(
    outbox: Outbox, ledger: Ledger, resolution: str
) -> None:
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    await late_payment(outbox, token)

    response = await resolve(outbox, outbox_id, resolution=resolution, reason="not in the list")

    assert response.status_code == 409
    assert "was paid" in response.json()["detail"]
    assert await outbox.item_state(outbox_id) == "held"


async def test_what_was_left_to_a_person_ends_as_soon_as_a_worker_says_that_it_has_paid(
    outbox: Outbox, ledger: Ledger
) -> None:
    """The person's decision that it was not paid is refused until then."""
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    await outbox.reconcile()
    left = "SELECT left_at IS NOT NULL FROM penstock.outbox_lookup"
    assert await outbox.app.pool.fetchval(left)

    await late_payment(outbox, token)
    await outbox.reconcile(seconds=2)

    assert await outbox.states(outbox_id) == ["UNKNOWN", "DISPATCHED"]
    assert (await outbox.rows(outbox_id))[-1]["rail_reference"] == "r9"


async def test_the_last_check_sees_that_another_worker_has_paid(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Its result came after the next attempt was loaded, and before its call."""
    outbox.rails.rail = loaded(ledger.port)
    outbox_id = await outbox.send()
    token = await outbox.lose()
    await outbox.sweep(seconds=65)
    await resolve(outbox, outbox_id, resolution="again", reason="not in the bank's list")
    outbox.control.meanwhile = lambda: late_payment(outbox, token)

    await outbox.run()
    outbox.control.meanwhile = None
    await outbox.run_after(minutes=1)

    assert ledger.count("send") == 0
    assert (await outbox.states(outbox_id))[-1] == "DISPATCHED"


async def test_a_decision_about_an_attempt_does_not_decide_about_a_later_one(
    outbox: Outbox, ledger: Ledger
) -> None:
    """Two operators looked at the first attempt; the second one's decision would pay twice."""
    outbox.rails.rail = loaded(ledger.port)
    ledger.orders += ["drop", "lose"]
    outbox_id = await outbox.send()
    await outbox.run()
    again: dict[str, Any] = {"resolution": "again", "reason": "not in the list", "attempt": 1}
    first = await resolve(outbox, outbox_id, **again)
    await outbox.run()

    second = await resolve(outbox, outbox_id, **again)

    assert first.status_code == 200
    assert second.status_code == 409
    assert "was tried again" in second.json()["detail"]
    assert await outbox.item_state(outbox_id) == "held"


async def test_a_decision_about_an_attempt_that_was_not_made_is_refused(
    outbox: Outbox, ledger: Ledger
) -> None:
    """It said that the instruction was tried again since, which nobody had done."""
    outbox_id = await doubtful(outbox, ledger)

    refused = await resolve(outbox, outbox_id, resolution="failed", reason="x", attempt=2)

    assert refused.status_code == 400
    assert refused.json()["field"] == "attempt"
    assert "the last one is 1" in refused.json()["detail"]
    assert await outbox.states(outbox_id) == ["UNKNOWN"]
