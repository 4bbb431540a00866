"""The first phase as a workflow: it enqueues a payment once, and then it is over."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import LiteralString

import msgspec
import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments import wire
from penstock.domains.payments.payment import Draft, NewPayment
from penstock.domains.payments.schedule import admit
from penstock.domains.payments.steps import STEPS, Steps
from penstock.domains.payments.temporal.init_activities import ContextActivities
from penstock.domains.payments.temporal.models import Schedulable
from penstock.integrations.temporal.start import NewWorkflow, start_workflow
from penstock.integrations.temporal.worker import WorkerSpec
from tests.domains.payments.temporal.invoice_workflow import InvoiceExec, InvoiceInit
from tests.domains.payments.temporal.scene import TemporalScene, activities_of
from tests.domains.payments.test_rules import NO_DUPLICATES

AT = datetime(2031, 5, 5, 16, tzinfo=UTC)
DAY_LIMIT: LiteralString = "INSERT INTO penstock.payment_limit VALUES ('', 'EUR', NULL, 20)"
NEVER_OPEN_NO_DUPLICATES: LiteralString = """
INSERT INTO penstock.payment_rule (item_type, refuses_duplicates, calendar) VALUES ('PAYMENT', true,
    '{"timeZone": "Europe/Paris",
      "blackouts": [{"from": "2030-01-01T00:00:00Z", "until": "2040-01-01T00:00:00Z"}]}')
"""
ACTIVITIES = [
    "validatePayment",
    "enrichPayment",
    "applyRules",
    "persistScheduledPayment",
    "buildContext",
    "determineExecTime",
    "saveContextAndEnqueue",
]


def request(payment_id: str, **more: object) -> str:
    return json.dumps(
        {
            "payment_id": payment_id,
            "amount": "12.50",
            "currency": "EUR",
            "debtor": {"name": "Ada", "iban": "DE89370400440532013000"},
            "creditor": {"name": "Bob", "iban": "FR1420041010050500013M02606"},
            "participant_id": "ada",
            "rail_type": "loopback",
            "execute_at": AT.isoformat(),
        }
        | more
    )


async def start_init(scene: TemporalScene, payment_id: str, text: str) -> str:
    init = NewWorkflow(
        id=f"init-payment-{payment_id}",
        type="PaymentInitWorkflow",
        task_queue=scene.init_queue,
        args=[payment_id, text],
    )
    await start_workflow(scene.client, init)
    return init.id


@pytest.mark.covers("A4", "A5", "A6", "A7")
async def test_a_payment_is_scheduled_and_the_workflow_is_over(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)

    async with scene.workers("init"):
        init_id = await start_init(scene, payment_id, request(payment_id))
        scheduled_at = await scene.client.get_workflow_handle(init_id).result()

    assert datetime.fromisoformat(scheduled_at) == AT
    payment = await scene.payments.payment(payment_id)
    assert (payment["status"], payment["scheduled_at"]) == ("SCHEDULED", AT)
    assert payment["init_workflow_id"] == init_id
    assert await scene.payments.item_states() == ["scheduled"]
    assert activities_of(await scene.history(init_id)) == ACTIVITIES


@pytest.mark.covers("A38", "A99")
async def test_a_repeated_enqueue_changes_nothing(scene: TemporalScene) -> None:
    """Temporal repeats an activity whose result was lost."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    pool = scene.payments.app.pool
    before = await pool.fetch("SELECT * FROM penstock.payment_exec_context, penstock.item")
    item = Schedulable(
        item_type="PAYMENT", item_id=payment_id, context_json='{"other": 1}', exec_time=None
    )

    await ContextActivities(pool=pool).save_context_and_enqueue(item)

    after = await pool.fetch("SELECT * FROM penstock.payment_exec_context, penstock.item")
    assert after == before


@pytest.mark.covers("A95")
async def test_a_payment_that_is_refused_fails_at_once(scene: TemporalScene) -> None:
    invalid, known = scene.ids(2)
    await scene.payments.schedule(known)

    async with scene.workers("init"):
        failed = await cause(scene, await start_init(scene, invalid, request(invalid, amount="0")))
        conflict = await cause(scene, await start_init(scene, known, request(known)))

    assert (failed.type, conflict.type) == ("invalid-input", "payment-conflict")
    assert len(await scene.payments.item_states()) == 1


async def test_a_field_that_is_not_known_fails_the_workflow_with_its_name(
    scene: TemporalScene,
) -> None:
    """A misspelt instant that is dropped is a payment that is paid now."""
    misspelt, twice, broken = scene.ids(3)
    given_twice = request(twice).replace('"amount"', '"amount": "1.00", "amount"')

    async with scene.workers("init"):
        refused = [
            await cause(scene, await start_init(scene, payment_id, text))
            for payment_id, text in [
                (misspelt, request(misspelt, executeAt=AT.isoformat())),
                (twice, given_twice),
                (broken, request(broken, currency="\ud800")),
            ]
        ]

    assert [each.type for each in refused] == ["invalid-input"] * 3
    assert "unknown field `executeAt`" in refused[0].message
    assert "amount: is given twice" in refused[1].message
    assert await scene.payments.item_states() == []


async def test_the_workflow_uses_the_steps_of_the_app(scene: TemporalScene) -> None:
    """A rule that holds over REST alone is bypassed by whoever starts workflows."""

    def validate(_payment: NewPayment) -> Draft:
        raise InvalidInput("payment_id", "is not wanted here")

    (payment_id,) = scene.ids(1)

    async with scene.workers("init", steps=replace(STEPS, validate=validate)):
        failed = await cause(scene, await start_init(scene, payment_id, request(payment_id)))

    assert (failed.type, "not wanted" in failed.message) == ("invalid-input", True)


@pytest.mark.parametrize("rule", [NO_DUPLICATES, DAY_LIMIT], ids=["duplicates", "day limit"])
async def test_of_two_payments_at_once_the_rules_allow_one(
    scene: TemporalScene, rule: LiteralString
) -> None:
    """Both have passed the step of the rules before one of them is persisted."""
    await scene.payments.app.pool.execute(rule)
    payment_ids = scene.ids(2)
    both_ruled = BothRuled()

    async with scene.workers("init", steps=both_ruled.steps()):
        inits = [await start_init(scene, each, request(each)) for each in payment_ids]
        results = [scene.client.get_workflow_handle(each).result() for each in inits]
        ended = await asyncio.gather(*results, return_exceptions=True)
        (refused,) = [
            await cause(scene, init)
            for init, result in zip(inits, ended, strict=True)
            if isinstance(result, WorkflowFailureError)
        ]

    assert both_ruled.is_over.is_set()
    assert refused.type == "payment-refused"
    rows = await scene.payments.app.pool.fetch("SELECT status FROM penstock.payment")
    assert [row[0] for row in rows] == ["SCHEDULED"]


async def test_a_payment_without_an_opening_is_rejected_and_gives_back_what_it_held(
    scene: TemporalScene,
) -> None:
    """It was persisted by an earlier step; SCHEDULED without an item, nobody could end it."""
    pool = scene.payments.app.pool
    await pool.execute(DAY_LIMIT)
    await pool.execute(NEVER_OPEN_NO_DUPLICATES)
    closed, other = scene.ids(2)

    async with scene.workers("init"):
        refused = await cause(scene, await start_init(scene, closed, request(closed)))
        await pool.execute("UPDATE penstock.payment_rule SET calendar = NULL")
        init = await start_init(scene, other, request(other))
        await scene.client.get_workflow_handle(init).result()

    assert refused.type == "invalid-input"
    assert await scene.payments.status(other) == "SCHEDULED"
    payment = await scene.payments.payment(closed)
    assert (payment["status"], payment["item_id"]) == ("REJECTED", None)
    assert payment["reason"] == refused.message
    total = await pool.fetchval("SELECT amount FROM penstock.payment_day_total")
    assert total == Decimal("12.50")
    listed = (await scene.payments.client.get("/payments")).json()["payments"]
    assert {each["payment_id"]: each["status"] for each in listed} == {
        closed: "REJECTED", other: "SCHEDULED"
    }  # fmt: skip


async def test_a_payment_without_a_slot_is_rejected(scene: TemporalScene) -> None:
    """Years ahead of what the pool plans; tried again until then, it would be a timer for years."""
    (payment_id,) = scene.ids(1)
    await scene.payments.set_lane(slot_pool="default")

    async with scene.workers("init"):
        refused = await cause(scene, await start_init(scene, payment_id, request(payment_id)))

    payment = await scene.payments.payment(payment_id)
    assert (refused.type, payment["status"]) == ("slot-refused", "REJECTED")
    assert payment["reason"] == refused.message


async def test_a_rejected_payment_is_not_enqueued_by_a_repeat(scene: TemporalScene) -> None:
    """Temporal repeats an activity whose failure was lost, and a calendar may open meanwhile."""
    (payment_id,) = scene.ids(1)
    pool = scene.payments.app.pool
    await pool.execute(NEVER_OPEN_NO_DUPLICATES)
    async with scene.workers("init"):
        await cause(scene, await start_init(scene, payment_id, request(payment_id)))
        await pool.execute("UPDATE penstock.payment_rule SET calendar = NULL")
        again = NewWorkflow(
            id=f"again-{payment_id}",
            type="PaymentInitWorkflow",
            task_queue=scene.init_queue,
            args=[payment_id, request(payment_id)],
        )
        await start_workflow(scene.client, again)
        refused = await cause(scene, again.id)
    item = Schedulable(item_type="PAYMENT", item_id=payment_id, context_json="{}")

    with pytest.raises(ApplicationError, match="is REJECTED"):
        await ContextActivities(pool=pool).save_context_and_enqueue(item)

    assert "is REJECTED" in refused.message
    assert await scene.payments.item_states() == []


async def test_a_payment_that_was_cancelled_unfinished_is_not_enqueued(
    scene: TemporalScene,
) -> None:
    """Its item would wait for nothing, and take a slot of another payment."""
    pool = scene.payments.app.pool
    (payment_id,) = scene.ids(1)
    given = wire.read_new_payment(request(payment_id), name="request")
    draft = msgspec.structs.replace(STEPS.validate(given), created_by="test")
    async with pool.acquire() as db, db.transaction():
        await admit(db, [draft], steps=STEPS, at=datetime.now(UTC))
    cancelled = await scene.payments.client.post(f"/payments/{payment_id}/cancel")
    assert cancelled.is_success, cancelled.text
    item = Schedulable(item_type="PAYMENT", item_id=payment_id, context_json="{}")

    with pytest.raises(ApplicationError, match="is CANCELLED") as refused:
        await ContextActivities(pool=pool).save_context_and_enqueue(item)

    assert refused.value.non_retryable
    assert await scene.payments.item_states() == []
    assert await pool.fetchval("SELECT count(*) FROM penstock.payment_exec_context") == 0


@pytest.mark.covers("A56", "A57", "A58")
async def test_another_item_type_composes_the_lifecycle(scene: TemporalScene) -> None:
    """A new item type is a row, its two workflows and no change to the framework."""
    pool = scene.payments.app.pool
    executing = WorkerSpec(
        task_queue=scene.exec_queue,
        workflows=[InvoiceExec],
        activities=[],
        workflows_at_once=5,
        activities_at_once=5,
    )
    await scene.add_item_type("INVOICE", workflow="InvoiceExec", queue=scene.exec_queue)
    spec = WorkerSpec(
        task_queue=scene.init_queue,
        workflows=[InvoiceInit],
        activities=[ContextActivities(pool=pool).save_context_and_enqueue],
        workflows_at_once=5,
        activities_at_once=5,
    )
    (invoice_id,) = scene.ids(1)
    init = NewWorkflow(
        id=f"init-{invoice_id}", type="InvoiceInit", task_queue=scene.init_queue, args=[invoice_id]
    )

    async with scene.running([spec]):
        await start_workflow(scene.client, init)
        await scene.client.get_workflow_handle(init.id).result()
    async with scene.workers("dispatch"):
        assert await scene.dispatch("INVOICE") == 1
    async with scene.running([executing]):
        executed = scene.client.get_workflow_handle(f"exec-invoice-{invoice_id}")
        assert await executed.result() == f"{invoice_id}: 7.00"

    (run,) = await scene.runs(invoice_id, item_type="invoice")
    assert run.workflow_type == "InvoiceExec"
    row = await pool.fetchrow(
        "SELECT item_type, queue_status FROM penstock.payment_exec_queue WHERE payment_id = $1",
        invoice_id,
    )
    assert row is not None
    assert tuple(row.values()) == ("INVOICE", "DISPATCHED")


@dataclass(slots=True)
class BothRuled:
    """The shipped steps; nothing is persisted before two payments have passed the rules once."""

    ruled: set[str] = field(default_factory=set[str])
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def steps(self) -> Steps:
        return replace(STEPS, apply_rules=self.apply_rules, persist=self.persist)

    async def apply_rules(
        self, connection: object, drafts: Sequence[Draft], now: datetime
    ) -> Sequence[Draft | PenstockError]:
        (draft,) = drafts
        if draft.payment_id in self.ruled:
            await self.is_over.wait()
        answers = await STEPS.apply_rules(connection, drafts, now)
        self.ruled.add(draft.payment_id)
        if len(self.ruled) == 2:
            self.is_over.set()
        return answers

    async def persist(
        self, connection: object, drafts: Sequence[Draft], now: datetime
    ) -> frozenset[str]:
        await self.is_over.wait()
        return await STEPS.persist(connection, drafts, now)


async def cause(scene: TemporalScene, workflow_id: str) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as failed:
        await scene.client.get_workflow_handle(workflow_id).result()
    step = failed.value.cause
    assert isinstance(step, ActivityError)
    assert isinstance(step.cause, ApplicationError)
    return step.cause
