"""A payment is shown with its whole way across domains."""

from datetime import UTC, datetime, timedelta

from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import Scene

NOTIFY = {"event": True, "mail": "ada@example.org"}
# Within the horizon of slots.
SOON = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2)


async def test_a_payment_is_shown_with_what_happened_in_each_domain(
    scene: Scene, ledger: Ledger
) -> None:
    """Whoever is asked where the money is needs one page, not five."""
    ledger.orders += ["BUSY"]
    await scene.schedule("p-1", "p-2", notify=NOTIFY)
    await scene.run()
    scene.clock.advance(timedelta(hours=1))
    await scene.run()

    response = await scene.client.get("/payments/p-1")

    assert response.status_code == 200, response.text
    told = response.json()
    assert told["payment"]["status"] == "SETTLED"
    assert told["item"]["state"] == "done"
    assert [each["outcome"] for each in told["attempts"]] == ["done"]
    instruction = told["instruction"]
    assert instruction["outbox_id"] == told["payment"]["outbox_id"]
    assert (instruction["state"], instruction["rail_reference"]) == ("DISPATCHED", "ref-p-1")
    tried = [(each["state"], each["rail_code"]) for each in instruction["attempts"]]
    assert [each for each in tried if each[0] != "DISPATCHING"] == [
        ("RETRYABLE", "BUSY"), ("DISPATCHED", "PAID")
    ]  # fmt: skip
    assert [each["type"] for each in told["events"]] == ["payment.processing", "payment.settled"]
    assert [each["subject"] for each in told["mails"]] == [
        "Payment p-1: processing", "Payment p-1: settled"
    ]  # fmt: skip


async def test_the_story_of_a_payment_that_waits_is_short(scene: Scene) -> None:
    await scene.schedule("p-1", execute_at="2040-01-31T16:00:00Z")

    told = (await scene.client.get("/payments/p-1")).json()

    assert told["payment"]["status"] == "SCHEDULED"
    assert told["item"]["state"] == "scheduled"
    assert (told["slot"], told["attempts"], told["instruction"]) == (None, [], None)
    assert (told["events"], told["mails"]) == ([], [])


async def test_the_story_of_a_payment_has_the_slot_that_decided_its_instant(scene: Scene) -> None:
    """Asked for one instant, the second payment waits for its place; the story says why."""
    await scene.set_lane(slot_pool="default")
    await scene.schedule("p-1", "p-2", execute_at=SOON)

    told = (await scene.client.get("/payments/p-2")).json()
    await scene.client.post("/payments/p-2/cancel")
    cancelled = (await scene.client.get("/payments/p-2")).json()

    slot, payment = told["slot"], told["payment"]
    assert (slot["pool"], slot["event_id"]) == ("default", f"item:{told['item']['id']}")
    assert datetime.fromisoformat(slot["requested_at"]) == SOON
    assert datetime.fromisoformat(slot["scheduled_at"]) > SOON
    assert slot["scheduled_at"] == payment["scheduled_at"] == told["item"]["due_at"]
    assert cancelled["slot"] is None, "a cancelled payment gives its slot back"


async def test_a_payment_whose_rail_does_not_exist_says_why_it_waits(scene: Scene) -> None:
    """Nothing has failed yet, so nobody is told; who looks must see the cause."""
    await scene.schedule("p-1", "p-2", rail_type="nowhere")
    await scene.run()

    first, second = [
        (await scene.client.get(f"/payments/{each}")).json() for each in ("p-1", "p-2")
    ]

    assert first["payment"]["status"] == "PROCESSING"
    assert first["instruction"]["state"] == second["instruction"]["state"] == "PENDING"
    assert first["instruction"]["reason"] == "no rail nowhere in this process"
    assert "with the same order key" in second["instruction"]["reason"]


async def test_a_payment_that_an_operator_has_held_says_so(scene: Scene) -> None:
    await scene.schedule("p-1")
    await scene.run_payments()
    outbox_id = (await scene.payment("p-1"))["outbox_id"]
    held = await scene.client.post(
        f"/outbox/instructions/{outbox_id}/hold", json={"reason": "looks wrong"}
    )

    told = (await scene.client.get("/payments/p-1")).json()

    assert held.status_code == 200, held.text
    assert told["instruction"]["reason"] == "held: looks wrong"
