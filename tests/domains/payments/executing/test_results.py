"""What the rail says about executed payments, and who is told: in one transaction, and once."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, LiteralString

import pytest
from httpx import Response
from msgspec.structs import replace
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.base.settings import read_once
from penstock.domains.outbox.rails.registry import RailRow, put_rail
from penstock.domains.outbox.reconcile.results import sign
from penstock.domains.payments.results import PaymentResult
from penstock.kernel.item import Retry
from penstock.testing import run_due
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import LEASE_OVER, Scene, ledger_outbox
from tests.domains.payments.scene import read_gauge

SECRET = "what the rail signs with"
NOTIFY = {"event": True, "mail": "ada@example.org"}


@pytest.mark.covers("A15")
async def test_a_payment_that_goes_on_after_its_rejection_has_not_ended(
    scene: Scene, ledger: Ledger
) -> None:
    ledger.orders += ["REJECTED", "accept"]
    await scene.schedule("p-1")
    await scene.run()
    assert (await scene.payment("p-1"))["ended_at"] is not None
    await release(scene, "p-1")

    await scene.run()

    payment = await scene.payment("p-1")
    assert (payment["status"], payment.get("ended_at")) == ("PROCESSING", None)


async def test_a_payment_that_the_rail_has_paid_is_settled(scene: Scene, ledger: Ledger) -> None:
    await scene.schedule("p-1")

    await scene.run()

    payment = await scene.payment("p-1")
    assert (payment["status"], payment["rail_reference"]) == ("SETTLED", "ref-p-1")
    assert payment["ended_at"] is not None
    assert ledger.bookings == ["p-1"]


async def test_a_payment_that_the_rail_refuses_is_rejected_with_the_code(
    scene: Scene, ledger: Ledger
) -> None:
    ledger.orders += ["REJECTED"]
    await scene.schedule("p-1")

    await scene.run()

    payment = await scene.payment("p-1")
    assert (payment["status"], payment["reason"]) == ("REJECTED", "TERMINAL REJECTED")


async def test_a_payment_that_the_rail_has_only_accepted_goes_on_until_it_settles(
    scene: Scene, ledger: Ledger
) -> None:
    """Accepted is not paid: whoever delivers goods for it would lose them."""
    ledger.orders += ["accept"]
    await scene.schedule("p-1")
    await scene.run()
    payment = await scene.payment("p-1")
    assert (payment["status"], payment["rail_reference"]) == ("PROCESSING", "ref-p-1")

    await report(scene, "p-1", status="settled")

    assert await scene.status("p-1") == "SETTLED"


async def test_a_result_that_the_database_refuses_is_kept_and_applied_once(
    scene: Scene, ledger: Ledger
) -> None:
    """The rail has paid, so the outbox must not fail because the payment could not be moved."""
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run_payments()
    await refuse_moves(scene)
    await scene.run()
    assert await scene.status("p-1") == "PROCESSING"
    assert await read_gauge(scene.app, "payment_results_kept") == 1

    assert await scene.apply_kept() == 1
    assert await scene.status("p-1") == "PROCESSING"
    await allow_moves(scene)
    assert await scene.apply_kept() == 0, "tried again too soon"
    await scene.app.pool.execute("UPDATE penstock.payment_kept_result SET due_at = now()")
    assert await scene.apply_kept() == 1

    payment = await scene.payment("p-1")
    assert (payment["status"], payment["rail_reference"]) == ("SETTLED", "ref-p-1")
    assert ledger.bookings == ["p-1"]
    assert [kind for kind, _ in await scene.events()] == ["payment.processing", "payment.settled"]
    assert await scene.apply_kept() == 0
    assert await read_gauge(scene.app, "payment_results_kept") == 0


async def test_a_result_waits_while_an_older_one_of_the_payment_is_kept(
    scene: Scene, ledger: Ledger
) -> None:
    """Applied after the newer one, the older one would be the payment's status for ever."""
    ledger.orders += ["lose"]
    await scene.schedule("p-1")
    await scene.run_payments()
    await refuse_moves(scene)
    await scene.run()
    await allow_moves(scene)

    assert (await resolve(scene, "p-1", "failed")).status_code == 200
    assert await scene.apply_kept() == 2

    assert await scene.status("p-1") == "REJECTED"


async def test_kept_results_of_a_payment_are_applied_in_their_order(
    scene: Scene, ledger: Ledger
) -> None:
    """The older one failed a moment ago and is due later than the newer one."""
    ledger.orders += ["lose"]
    await scene.schedule("p-1")
    await scene.run_payments()
    await refuse_moves(scene)
    await scene.run()
    assert await scene.apply_kept() == 1
    assert (await resolve(scene, "p-1", "failed")).status_code == 200
    await allow_moves(scene)

    assert await scene.apply_kept() == 0, "the newer one is applied first"
    await scene.app.pool.execute("UPDATE penstock.payment_kept_result SET due_at = now()")
    assert await scene.apply_kept() == 2

    assert await scene.status("p-1") == "REJECTED"


async def test_a_decision_whose_result_cannot_even_be_kept_is_not_made(
    scene: Scene, ledger: Ledger
) -> None:
    """Otherwise the instruction would be final, and nothing would ever move the payment."""
    ledger.orders += ["lose"]
    await scene.schedule("p-1")
    await scene.run()
    await refuse_moves(scene)
    pool = scene.app.pool
    await pool.execute(
        "ALTER TABLE penstock.payment_kept_result ADD CONSTRAINT nothing_is_kept CHECK (false)"
    )

    refused = await resolve(scene, "p-1", "paid", reference="4711")
    await pool.execute("ALTER TABLE penstock.payment_kept_result DROP CONSTRAINT nothing_is_kept")
    await allow_moves(scene)
    decided = await resolve(scene, "p-1", "paid", reference="4711")

    assert (refused.status_code, decided.status_code) == (503, 200)
    assert await scene.status("p-1") == "SETTLED"


async def test_a_settled_payment_that_comes_back_days_later_is_returned(scene: Scene) -> None:
    await scene.schedule("p-1")
    await scene.run()

    await report(scene, "p-1", status="returned", code="AC04")

    payment = await scene.payment("p-1")
    assert (payment["status"], payment["reason"]) == ("RETURNED", "AC04")


async def test_a_payment_is_unknown_while_the_outbox_holds_it_and_ends_as_a_person_decides(
    scene: Scene, ledger: Ledger
) -> None:
    ledger.orders += ["lose"]
    await scene.schedule("p-1")
    await scene.run()
    assert await scene.status("p-1") == "UNKNOWN"

    outbox_id = (await scene.payment("p-1"))["outbox_id"]
    decided = await scene.client.post(
        f"/outbox/instructions/{outbox_id}/resolve",
        json={"resolution": "paid", "reference": "4711", "reason": "on the statement"},
    )

    assert decided.status_code == 200, decided.text
    payment = await scene.payment("p-1")
    assert (payment["status"], payment["rail_reference"]) == ("SETTLED", "4711")
    assert payment["reason"] is None


async def test_a_rejected_payment_that_is_released_and_paid_is_settled(
    scene: Scene, ledger: Ledger
) -> None:
    """The rail has the last word: an account was opened again, and the money has left."""
    ledger.orders += ["REJECTED"]
    await scene.schedule("p-1")
    await scene.run()
    await release(scene, "p-1")

    await scene.run()

    assert await scene.status("p-1") == "SETTLED"
    assert ledger.bookings == ["p-1"]


async def test_requested_notifications_are_sent_once_by_event_and_mail(scene: Scene) -> None:
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.schedule("p-2")

    await scene.run()
    again = await report(scene, "p-1", status="settled")

    assert again.status_code == 200, again.text
    about = {"payment_id": "p-1", "amount": "12.50", "currency": "EUR"}
    (executed, was_executed), (ended, has_ended) = await scene.events()
    assert (executed, was_executed) == ("payment.processing", about | {"status": "PROCESSING"})
    assert has_ended.pop("moved_at") is not None
    about |= {"status": "SETTLED", "rail_reference": "ref-p-1"}
    assert (ended, has_ended) == ("payment.settled", about)
    assert await scene.mails() == [
        (["ada@example.org"], "Payment p-1: processing"),
        (["ada@example.org"], "Payment p-1: settled"),
    ]


async def test_a_payment_that_is_only_accepted_sends_one_notification(
    scene: Scene, ledger: Ledger
) -> None:
    """Its status has not changed: the rail has only given it a reference."""
    ledger.orders += ["accept"]
    await scene.schedule("p-1", notify=NOTIFY)

    await scene.run()

    assert (await scene.payment("p-1"))["rail_reference"] == "ref-p-1"
    assert [kind for kind, _ in await scene.events()] == ["payment.processing"]


async def test_a_status_that_comes_again_after_another_is_notified_again(
    scene: Scene, ledger: Ledger
) -> None:
    """Otherwise the last word of a subscriber would be `unknown`."""
    ledger.orders += ["REJECTED", "drop", "REJECTED"]
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run()
    await release(scene, "p-1")
    await scene.run()
    assert (await resolve(scene, "p-1", "again")).status_code == 200

    await scene.run()

    kinds = [kind.removeprefix("payment.") for kind, _ in await scene.events()]
    assert kinds == ["processing", "rejected", "unknown", "rejected"]
    assert [subject.split()[-1] for _, subject in await scene.mails()] == kinds
    assert await scene.status("p-1") == "REJECTED"


async def test_follow_ups_are_there_before_the_item_is_done(scene: Scene) -> None:
    """A crash between the two must not lose them, and a repeat must not send them again."""
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.execute_and_die()
    assert [kind for kind, _ in await scene.events()] == ["payment.processing"]
    assert len(await scene.mails()) == 1

    scene.clock.advance(LEASE_OVER)
    await scene.run_payments()

    assert len(await scene.events()) == 1
    assert len(await scene.mails()) == 1


async def test_a_refused_payment_sends_a_notification(scene: Scene) -> None:
    await scene.schedule("p-1", notify={"event": True})
    await scene.spoil("p-1", rail_type="Not a rail")

    await scene.run_payments()

    ((kind, about),) = await scene.events()
    assert (kind, about["status"]) == ("payment.rejected", "REJECTED")
    assert about["reason"].startswith("rail_type: ")


async def test_a_failed_notification_does_not_stop_a_payment(scene: Scene) -> None:
    """An event that is lost is an error in the log; a payment that is late costs money."""
    await scene.app.pool.execute("ALTER TABLE penstock.webhook_event_id ADD CHECK (false)")
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.spoil("p-1", notify={"event": True, "mail": "not an address"})

    await scene.run_payments()

    assert await scene.status("p-1") == "PROCESSING"
    assert await scene.mails() == []


@pytest.mark.parametrize(
    "condition", ["lock_not_available", "query_canceled", "serialization_failure"]
)
async def test_a_notification_is_not_lost_to_an_error_that_passes(
    scene: Scene, condition: LiteralString
) -> None:
    """Nothing is wrong with it: the attempt is repeated, and then there is one of each."""
    await fail_events(scene, condition)
    await scene.schedule("p-1", notify=NOTIFY)

    (failed,) = await scene.run_payments()
    assert isinstance(failed.outcome, Retry)
    assert await scene.status("p-1") == "SCHEDULED"
    await accept_events(scene)
    scene.clock.advance(LEASE_OVER)
    await scene.run_payments()

    assert await scene.status("p-1") == "PROCESSING"
    assert [kind for kind, _ in await scene.events()] == ["payment.processing"]
    assert len(await scene.mails()) == 1


async def test_a_result_is_kept_while_its_notification_cannot_be_accepted(scene: Scene) -> None:
    """The rail has paid: the payment is moved a minute later, with its notification."""
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run_payments()
    await fail_events(scene, "lock_not_available")
    await scene.run()
    assert await scene.status("p-1") == "PROCESSING"

    await accept_events(scene)
    assert await scene.apply_kept() == 1

    assert await scene.status("p-1") == "SETTLED"
    assert [kind for kind, _ in await scene.events()] == ["payment.processing", "payment.settled"]


async def test_a_worker_of_the_outbox_alone_sends_the_notifications_of_a_result(
    scene: Scene, dsn: str, *, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent about a payment must not depend on which worker has talked to its rail."""
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run_payments()

    with only_domain("outbox", monkeypatch):
        async with Penstock(dsn=dsn, domains=[ledger_outbox(ledger, scene.clock)]) as rail_worker:
            await run_due(rail_worker, scene.clock)

    assert await scene.status("p-1") == "SETTLED"
    assert [kind for kind, _ in await scene.events()] == ["payment.processing", "payment.settled"]
    assert len(await scene.mails()) == 2


async def test_an_instruction_of_somebody_else_moves_no_payment(scene: Scene) -> None:
    """The outbox may be used beside payments, also with the same ids."""
    await scene.app.pool.execute("UPDATE penstock.lane SET enabled = false WHERE name = 'payment'")
    await scene.schedule("p-1")
    body = {"instruction_id": "p-1", "participant_id": "eve", "idempotency_key": "1"}
    payload = {"amount": "1.00", "currency": "EUR", "destination": {}}
    await scene.client.post(
        "/outbox/instructions", json=body | {"rail_type": "loopback", "payload": payload}
    )

    await scene.run()

    assert await scene.status("p-1") == "SCHEDULED"


async def test_a_result_that_the_state_machine_refuses_changes_nothing_and_is_logged(
    scene: Scene,
) -> None:
    """Such as one of a domain that pays in place of the outbox, and has made a mistake."""
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run()
    outbox_id = (await scene.payment("p-1"))["outbox_id"]
    settled = PaymentResult(payment_id="p-1", outbox_id=outbox_id, status="SETTLED")
    rejected = replace(settled, status="REJECTED")

    with capture_logs() as lines:
        async with scene.app.pool.acquire() as db, db.transaction():
            await scene.results().apply(db, [settled, rejected])

    assert await scene.status("p-1") == "SETTLED"
    assert [kind for kind, _ in await scene.events()] == ["payment.processing", "payment.settled"]
    (line,) = [each for each in lines if each["event"] == "payment.not_moved"]
    assert (line["payment_id"], line["status"], line["outcome"]) == ("p-1", "SETTLED", "REJECTED")


@contextmanager
def only_domain(name: str, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let the environment name one domain; settings are read again, also afterwards."""
    with monkeypatch.context() as patched:
        patched.setenv("PENSTOCK_DOMAINS", name)
        read_once.cache_clear()
        yield
    read_once.cache_clear()


async def refuse_moves(scene: Scene) -> None:
    """Let every move of a payment end in a deadlock."""
    await scene.app.pool.execute(
        """
        CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE deadlock_detected; END $$;
        CREATE TRIGGER deadlock BEFORE UPDATE ON penstock.payment EXECUTE FUNCTION deadlock()
        """
    )


async def allow_moves(scene: Scene) -> None:
    await scene.app.pool.execute("DROP TRIGGER deadlock ON penstock.payment")


async def fail_events(scene: Scene, condition: LiteralString) -> None:
    """Let every event fail with a condition of PL/pgSQL."""
    await scene.app.pool.execute(
        f"""
        CREATE FUNCTION fail_events() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE {condition}; END $$;
        CREATE TRIGGER fails BEFORE INSERT ON penstock.webhook_event_id
        EXECUTE FUNCTION fail_events()
        """
    )


async def accept_events(scene: Scene) -> None:
    await scene.app.pool.execute("DROP TRIGGER fails ON penstock.webhook_event_id")


async def release(scene: Scene, payment_id: str) -> None:
    """Let the outbox send a failed instruction again."""
    outbox_id = (await scene.payment(payment_id))["outbox_id"]
    released = await scene.client.post(
        f"/outbox/instructions/{outbox_id}/release", json={"reason": "the account is open again"}
    )
    assert released.status_code == 200, released.text


async def resolve(scene: Scene, payment_id: str, resolution: str, **more: str) -> Response:
    """Decide about the instruction of a payment, as a person does."""
    outbox_id = (await scene.payment(payment_id))["outbox_id"]
    return await scene.client.post(
        f"/outbox/instructions/{outbox_id}/resolve",
        json={"resolution": resolution, "reason": "on the statement"} | more,
    )


async def report(scene: Scene, payment_id: str, **body: Any) -> Response:
    """Send a signed report of the rail."""
    async with scene.app.pool.acquire() as db:
        await put_rail(
            db,
            RailRow(rail_type="loopback", adapter="simulator", code_set="simulator"),
            vault=scene.app.resources.vault,
            result_secret=SECRET,
            who="test",
        )
    given = {
        "rail_type": "loopback", "amount": "12.50", "currency": "EUR",
        "instruction_id": payment_id, "idempotency_key": payment_id,
    }  # fmt: skip
    text = json.dumps(given | body).encode()
    at = scene.app.resources.clock.microseconds() // 1_000_000
    return await scene.client.post(
        "/outbox/results",
        content=text,
        headers={
            "Content-Type": "application/json",
            "Penstock-Signature": sign(SECRET, text, at=at),
        },
    )


async def test_a_follow_up_that_is_refused_costs_no_other(scene: Scene) -> None:
    """A process without mail may have stored an address that mail refuses."""
    for number, mail in enumerate(["ada@example.org", "grace@example.org", "joan@example.org"]):
        await scene.schedule(f"p-{number}", notify={"mail": mail})
    await scene.spoil("p-1", notify={"mail": "grace.@example.org"})

    await scene.run_payments()

    assert [to for to, _ in await scene.mails()] == [["ada@example.org"], ["joan@example.org"]]
    assert await scene.status("p-1") == "PROCESSING"


async def test_a_payment_that_was_in_doubt_and_is_with_the_rail_is_processing_again(
    scene: Scene, ledger: Ledger
) -> None:
    """Subscribers must expect it: `unknown` is not the end, and `processing` comes twice."""
    ledger.orders += ["drop", "accept"]
    await scene.schedule("p-1", notify=NOTIFY)
    await scene.run()
    assert (await resolve(scene, "p-1", "again")).status_code == 200

    await scene.run()
    await report(scene, "p-1", status="settled")

    kinds = [kind.removeprefix("payment.") for kind, _ in await scene.events()]
    assert kinds == ["processing", "unknown", "processing", "settled"]
    assert [subject.split()[-1] for _, subject in await scene.mails()] == kinds
